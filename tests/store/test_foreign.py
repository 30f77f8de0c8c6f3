"""What no recorder put there: named, skipped, and never followed, waited for or deleted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sexton.store.layout import Lock, is_locked, prepare, read_plain
from sexton.store.pins import pins_in, take_marks
from sexton.store.recording import Recording
from sexton.store.retention import Limits, Retention
from sexton.store.schema import tables
from tests.support.recordings import BOOT, WALL_S, scratch, shown, simple, write_open, write_sealed

MARK, CORE = tables()["mark"], tables()["core_times"]


@pytest.fixture(autouse=True)
def _never_hangs() -> Iterator[None]:
    """A read that waits for a pipe would wait for ever: end it as a failure."""

    def give_up(*_: object) -> None:
        raise AssertionError("still waiting")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 42)  # 4 TiB of nothing


def link_to_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


ODD: list[Callable[[Path], None]] = [pipe, endless, link_to_device, directory, link_to_itself]


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("name", ["tables.zip", "manifest.json"])
def test_something_odd_in_place_of_a_sealed_file_is_named_and_not_waited_for(tmp_path, make, name):
    whole = write_sealed(tmp_path, [simple(1.0)], sequence=1)
    write_sealed(tmp_path, [simple(9.0)], sequence=2)
    (whole / name).unlink()
    make(whole / name)
    recording = Recording(tmp_path)
    found = [shown(segment.batches(CORE)) for segment in recording.segments]
    assert found[-1] == shown(simple(9.0)[CORE])
    assert len(found) == (1 if name == "manifest.json" else 2)
    for segment in recording.segments:
        segment.batches(MARK)
    assert [
        problem for problem in recording.problems if f"{whole.name}" in problem and name in problem
    ]


@pytest.mark.parametrize("make", ODD)
@pytest.mark.parametrize("name", ["mark.rows", "journal"])
def test_something_odd_in_place_of_an_open_file_is_named_and_not_waited_for(tmp_path, make, name):
    opened = write_open(tmp_path, [simple(1.0)])
    content = (opened / name).read_bytes()
    (opened / name).unlink()
    make(opened / name)
    recording = Recording(tmp_path)
    if name == "journal" and make is not endless:
        assert recording.segments == []
    assert [problem for problem in recording.problems if name in problem]
    assert content


@pytest.mark.parametrize("make", ODD)
def test_something_odd_in_place_of_a_pin_or_the_lock_is_not_waited_for(tmp_path, make):
    prepare(tmp_path)
    make(tmp_path / "pins" / "a.json")
    assert pins_in(tmp_path) == ([], ["pins/a.json: not a pin, skipped"])
    make(tmp_path / "LOCK")
    assert not is_locked(tmp_path)


def test_the_lock_is_not_written_through_a_link(tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / "LOCK").symlink_to(precious)
    with pytest.raises(Exception, match="LOCK"):
        Lock(tmp_path)
    assert precious.read_text() == "kept"


def test_a_plain_file_is_read_as_far_as_asked(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"abcdef")
    assert read_plain(tmp_path / "file", 3) == b"abc"
    assert read_plain(tmp_path / "file", 99) == b"abcdef"
    assert read_plain(tmp_path / "file", 6, exactly=True) == b"abcdef"
    for size in (5, 7):
        with pytest.raises(OSError, match="6 bytes"):
            read_plain(tmp_path / "file", size, exactly=True)


@pytest.mark.parametrize("place", ["open", "segments"])
def test_foreign_names_are_told_and_the_rest_is_read(tmp_path: Path, place: str):
    write_sealed(tmp_path, [simple(1.0)])
    (tmp_path / place / "lost+found").mkdir()
    (tmp_path / place / "a\x1b[2J.txt").write_text("x")
    (tmp_path / place / "00000009-20240101T000000Z").write_text("a file")
    (tmp_path / place / ".new-00000010-20240101T000000Z").mkdir()
    recording = Recording(tmp_path)
    assert len(recording.segments) == 1
    assert recording.problems == [
        f"{place}/00000009-20240101T000000Z: not a segment, skipped",
        f"{place}/a\\x1b[2J.txt: not a segment, skipped",
        f"{place}/lost+found: not a segment, skipped",
    ]


def test_a_segments_name_that_is_a_link_is_neither_read_nor_deleted_through(tmp_path: Path):
    other = tmp_path / "other"
    whole = write_sealed(other, [simple(1.0)])
    recording = tmp_path / "recording"
    prepare(recording)
    link = recording / "segments" / "00000001-20240101T000000Z"
    link.symlink_to(whole)
    found = Recording(recording)
    assert found.segments == []
    assert found.problems == [f"segments/{link.name}: not a segment, skipped"]
    assert Retention(recording, Limits(0.0, 0)).tidy((1e9, 4e9), BOOT) == []
    assert link.is_symlink()
    assert len(list(whole.iterdir())) == 2


@pytest.mark.parametrize("name", ["tables.zip", "manifest.json", "mark.rows", "journal"])
def test_a_file_that_is_a_link_is_not_followed_even_to_its_own_content(tmp_path: Path, name: str):
    write = write_sealed if name in ("tables.zip", "manifest.json") else write_open
    segment = write(tmp_path, [simple(1.0)])
    (segment / name).rename(tmp_path / "elsewhere")
    (segment / name).symlink_to(tmp_path / "elsewhere")
    recording = Recording(tmp_path)
    found = [batch for item in recording.segments for batch in item.batches(MARK) if batch.rows]
    assert found == []
    assert [problem for problem in recording.problems if name in problem]


def test_an_empty_directory_with_a_segments_name_is_named(tmp_path: Path):
    prepare(tmp_path)
    (tmp_path / "segments" / "00000001-20240101T000000Z").mkdir()
    recording = Recording(tmp_path)
    assert recording.problems == [
        "00000001-20240101T000000Z: manifest.json: No such file or directory"
    ]


READER = """
import json, os, sys
from pathlib import Path
from sexton.errors import StoreError
from sexton.store.recording import Recording
from sexton.store.schema import tables
tables()  # loaded while this checkout may be read: it may lie in a directory closed to others
os.setgid(65534); os.setuid(65534)
try:
    found = Recording(Path(sys.argv[1]))
    print(json.dumps([[each.name for each in found.segments], found.problems]))
except StoreError as error:
    print(json.dumps(str(error)))
"""


@pytest.fixture
def open_place() -> Iterator[Path]:
    """Not pytest's own: every session closes that one again."""
    with scratch() as place:
        os.chmod(place, 0o755)
        yield place


@pytest.mark.root
def test_what_is_closed_to_us_is_named_and_never_a_traceback(open_place: Path):
    recording = open_place / "recording"
    first = write_sealed(recording, [simple(1.0)], sequence=1)
    second = write_sealed(recording, [simple(9.0)], sequence=2)
    third = write_sealed(recording, [simple(19.0)], sequence=3)
    modes = {recording: 0o755, recording / "segments": 0o755, recording / "open": 0o755}
    modes |= {first: 0o755, first / "manifest.json": 0o644, second: 0o000, third: 0o755}
    for path, mode in modes.items():
        os.chmod(path, mode)

    def seen() -> object:
        shown = subprocess.run(
            [sys.executable, "-c", READER, str(recording)], capture_output=True, text=True
        )
        assert shown.returncode == 0, shown.stderr
        return json.loads(shown.stdout)

    names, problems = seen()
    assert names == [first.name]
    assert problems == [
        f"{second.name}: manifest.json: Permission denied",
        f"{third.name}: manifest.json: Permission denied",
    ]
    os.chmod(recording / "segments", 0o700)
    assert seen() == f"{recording}/segments: Permission denied"
    os.chmod(recording, 0o700)
    assert seen() == f"{recording}: Permission denied"


def test_a_stack_of_foreign_things_beside_the_segments_stops_no_retention(tmp_path: Path):
    prepare(tmp_path)
    path = tmp_path / "elsewhere"
    path.write_text("kept")
    (tmp_path / "stacks" / "directory").mkdir()
    (tmp_path / "stacks" / "link").symlink_to(path)
    os.mkfifo(tmp_path / "rings" / "pipe")
    (tmp_path / "stacks" / "perf.data.1").write_bytes(b"x" * 9000)
    Retention(tmp_path, Limits(1e9, 0)).tidy((1.0, WALL_S), BOOT)
    assert sorted(os.listdir(tmp_path / "stacks")) == ["directory", "link"]
    assert os.listdir(tmp_path / "rings") == ["pipe"]
    assert path.read_text() == "kept"


def test_a_directory_in_the_place_of_a_file_costs_no_descriptor(tmp_path: Path):
    (tmp_path / "pins" / "a.json").mkdir(parents=True)
    (tmp_path / "marks" / "b.json").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert pins_in(tmp_path)[1] == ["pins/a.json: not a pin, skipped"]
        assert take_marks(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_mark_of_nothing_but_brackets_is_no_mark(tmp_path: Path):
    (tmp_path / "marks").mkdir()
    (tmp_path / "marks" / "deep.json").write_text("[" * 16000)
    assert take_marks(tmp_path) == []
    assert list((tmp_path / "marks").iterdir()) == []
