"""Names, modes and files that are written whole."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import StoreError
from sexton.store.layout import (
    ASIDE,
    Lock,
    is_locked,
    parse_name,
    prepare,
    segment_name,
    segments_in,
    write_whole,
    written_aside,
)
from sexton.store.pins import Pin, add_pin
from tests.support.recordings import BOOT, simple, write_open, write_sealed


@pytest.fixture
def _no_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("_no_umask")
def test_everything_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path):
    recording = tmp_path / "made" / "too" / "recording"
    prepare(recording)
    lock = Lock(recording)
    write_sealed(recording, [simple(1.0)], sequence=1)
    write_open(recording, [simple(9.0)], sequence=2)
    add_pin(recording, Pin("a", "mark", "", "", BOOT, 1.0, 2.0, 3.0))
    write_whole(recording / "status.json", b"{}")
    lock.release()
    found = [tmp_path / "made", *(tmp_path / "made").rglob("*")]
    assert len(found) > 15
    for path in found:
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


@given(st.integers(0, 10**12), st.floats(allow_nan=False))
def test_a_segments_name_is_read_back_whatever_the_clock_says(sequence: int, wall_s: float):
    name = segment_name(sequence, wall_s)
    assert parse_name(name.text) == name


@given(st.text())
def test_no_other_name_is_a_segments(text: str):
    name = parse_name(text)
    assert name is None or f"{name.sequence:08d}" == text.partition("-")[0].lstrip("0").zfill(8)


def test_segments_are_ordered_by_sequence_and_not_by_their_clock(tmp_path: Path):
    names = [segment_name(9, 4e9), segment_name(10, 1e9), segment_name(100_000_000, 0.0)]
    for name in reversed(names):
        (tmp_path / name.text).mkdir()
    assert segments_in(tmp_path) == names
    assert segments_in(tmp_path / "nowhere") == []


def test_a_place_that_cannot_be_made_is_refused_in_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file: File exists"):
        prepare(tmp_path / "file" / "recording")
    (tmp_path / "recording").mkdir()
    (tmp_path / "recording" / "open").write_text("")
    with pytest.raises(StoreError, match="open: File exists"):
        prepare(tmp_path / "recording")
    with pytest.raises(StoreError, match="LOCK: No such file"):
        Lock(tmp_path / "nowhere")


def test_asking_who_records_never_keeps_a_recorder_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """`is_locked` holds the lock for an instant: here, until the recorder first waits."""
    asking = os.open(tmp_path / "LOCK", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(asking, fcntl.LOCK_SH)
    monkeypatch.setattr("sexton.store.layout.time.sleep", lambda _: os.close(asking))
    Lock(tmp_path).release()


def test_a_recorder_is_seen_while_it_records_and_not_after(tmp_path: Path):
    assert not is_locked(tmp_path)
    lock = Lock(tmp_path)
    assert is_locked(tmp_path)
    lock.release()
    assert not is_locked(tmp_path)


def test_a_file_is_replaced_whole_and_never_through_a_link(tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / ".new-status.json").symlink_to(precious)
    write_whole(tmp_path / "status.json", b"one")
    write_whole(tmp_path / "status.json", b"two")
    assert (tmp_path / "status.json").read_bytes() == b"two"
    assert precious.read_text() == "kept"
    assert sorted(os.listdir(tmp_path)) == ["precious", "status.json"]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(tmp_path: Path):
    (tmp_path / "status.json").mkdir()
    (tmp_path / "status.json" / "x").touch()
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path / "status.json", b"two")
    assert os.listdir(tmp_path) == ["status.json"]


def test_a_file_that_another_user_left_under_a_temporary_name_gets_nothing(tmp_path: Path):
    """They may have it open, and would read what is private."""
    target = tmp_path / "core_times.parquet"
    left = tmp_path / f"{ASIDE}{target.name}"
    left.write_bytes(b"")
    with left.open("rb") as theirs:
        with written_aside(target) as stream:
            stream.write(b"private")
        assert (theirs.read(), target.read_bytes()) == (b"", b"private")


def test_a_file_is_private_under_a_umask_that_takes_everything(tmp_path: Path):
    before = os.umask(0o777)
    try:
        write_whole(tmp_path / "pin.json", b"{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "pin.json").stat().st_mode) == 0o600
