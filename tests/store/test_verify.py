"""Everything that can be wrong with a recording, told apart."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.errors import StoreError
from sexton.profile.recorded import check_perf
from sexton.store.verify import DAMAGED, FOREIGN, TORN, Checks, verify
from tests.support.examples import examples
from tests.support.recordings import (
    damage_table,
    manifest_of,
    resign,
    scratch,
    simple,
    write_open,
    write_sealed,
)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Two sealed segments and an open one of two flushes."""
    place = tmp_path / "rec"
    write_sealed(place, [simple(100.0)], 1)
    write_sealed(place, [simple(200.0)], 2)
    write_open(place, [simple(300.0), simple(305.0)], 3)
    return place


def told(place: Path) -> list[tuple[str, str]]:
    return [(trouble.kind, trouble.place) for trouble in verify(place).troubles]


def only(place: Path, kind: str) -> str:
    """The place of the only trouble, which is of this kind."""
    found = verify(place).troubles
    assert [trouble.kind for trouble in found] == [kind], found
    return found[0].place


def sealed(place: Path) -> Path:
    return sorted((place / "segments").iterdir())[0]


def opened(place: Path) -> Path:
    (found,) = (place / "open").iterdir()
    return found


def test_a_recording_that_nobody_touched_is_whole_and_counted(recording: Path):
    found = verify(recording)
    assert found.troubles == []
    assert found.whole
    assert found.segments == 3
    assert found.rows == 4 * (4 + 3)
    assert found.bytes > 1000


def test_what_is_no_recording_is_refused(tmp_path: Path):
    with pytest.raises(StoreError, match="not a recording"):
        verify(tmp_path)
    with pytest.raises(StoreError, match="no such directory"):
        verify(tmp_path / "none")


@pytest.mark.parametrize("name", ["core_times", "reading"])
def test_one_flipped_bit_in_a_table_is_found_and_named(recording: Path, name: str):
    damage_table(sealed(recording), name)
    place = f"segments/{sealed(recording).name}/tables.zip/{name}.parquet"
    assert only(recording, DAMAGED) == place


@settings(max_examples=examples(60))
@given(st.data())
def test_one_flipped_bit_anywhere_in_a_sealed_segment_is_found(data):
    with scratch() as place:
        segment = write_sealed(place, [simple(100.0)], 1)
        path = segment / data.draw(st.sampled_from(["tables.zip", "manifest.json"]))
        content = bytearray(path.read_bytes())
        bit = data.draw(st.integers(0, len(content) * 8 - 1))
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        assert only(place, DAMAGED).startswith(f"segments/{segment.name}")


def test_a_checksum_that_is_spelled_in_another_way_is_damage(recording: Path):
    path = sealed(recording) / "manifest.json"
    path.write_bytes(b"+" + path.read_bytes())
    assert only(recording, DAMAGED) == f"segments/{path.parent.name}"


@pytest.mark.parametrize("name", ["tables.zip", "manifest.json"])
def test_a_missing_file_is_damage(recording: Path, name: str):
    (sealed(recording) / name).unlink()
    assert only(recording, DAMAGED)


def test_a_truncated_file_is_damage(recording: Path):
    path = sealed(recording) / "tables.zip"
    os.truncate(path, path.stat().st_size - 10)
    assert only(recording, DAMAGED).endswith("tables.zip")
    os.truncate(path, manifest_of(path.parent)["tables"]["mark"]["offset"] + 10)
    assert only(recording, DAMAGED).endswith("tables.zip/mark.parquet")


def test_a_pipe_that_bears_a_tables_name_does_not_hold_us(recording: Path):
    path = sealed(recording) / "tables.zip"
    path.unlink()
    os.mkfifo(path)
    assert only(recording, DAMAGED).endswith("tables.zip")


def test_a_manifest_that_belongs_elsewhere_is_damage(recording: Path):
    segment = sealed(recording)
    resign(segment, {**manifest_of(segment), "segment": "00000009-20200101T000000Z"})
    assert only(recording, DAMAGED) == f"segments/{segment.name}"


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "segments/core",
        "segments/{sealed}/evil.parquet",
        "open/{opened}/x.rows",
        "pins/junk.json",
        "marks/readme",
        "stacks/vmcore",
        "rings/ring.txt",
    ],
)
def test_a_foreign_file_is_named_and_counted(recording: Path, name: str):
    name = name.format(sealed=sealed(recording).name, opened=opened(recording).name)
    (recording / name).write_bytes(b"not ours")
    assert only(recording, FOREIGN) == name
    assert not verify(recording).whole


def test_a_foreign_name_cannot_disturb_a_terminal(recording: Path):
    (recording / "segments" / "\x1b[2J\n").write_text("")
    assert only(recording, FOREIGN) == "segments/\\x1b[2J\\n"


def test_a_link_to_another_segment_is_foreign(recording: Path):
    (recording / "segments" / "00000009-20200101T000000Z").symlink_to(sealed(recording))
    assert only(recording, FOREIGN) == "segments/00000009-20200101T000000Z"


@given(cut=st.integers(1, 60))
def test_a_torn_tail_is_told_as_what_it_is_and_is_no_error(tmp_path_factory, cut: int):
    place = tmp_path_factory.mktemp("torn") / "rec"
    write_open(place, [simple(300.0), simple(305.0)], 3)
    journal = opened(place) / "journal"
    os.truncate(journal, journal.stat().st_size - 1 - cut)
    found = verify(place)
    assert [trouble.kind for trouble in found.troubles] == [TORN]
    assert "at most 5 s lost" in found.troubles[0].detail
    assert found.whole
    assert found.rows == 2 * 2 + 3


def test_bytes_behind_the_last_flush_are_a_torn_tail_too(recording: Path):
    with (opened(recording) / "mark.rows").open("ab") as stream:
        stream.write(b"half a flush")
    assert only(recording, TORN) == f"open/{opened(recording).name}"


def test_while_a_recorder_runs_a_tail_is_not_even_told(recording: Path):
    with (opened(recording) / "mark.rows").open("ab") as stream:
        stream.write(b"half a flush")
    (recording / "segments" / ".new-00000004-20200101T000000Z").mkdir()
    with (recording / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = verify(recording)
        assert found.recording_now
        assert found.troubles == []
    assert {kind for kind, _ in told(recording)} == {TORN}


def test_a_flipped_bit_in_a_flush_is_damage(recording: Path):
    path = opened(recording) / "core_times.rows"
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    assert only(recording, DAMAGED) == f"open/{opened(recording).name}/core_times.rows"


def test_a_damaged_journal_line_with_whole_ones_after_it_is_damage(recording: Path):
    path = opened(recording) / "journal"
    lines = path.read_bytes().split(b"\n")
    lines[1] = b"0" + lines[1][1:] if lines[1][:1] != b"0" else b"1" + lines[1][1:]
    path.write_bytes(b"\n".join(lines))
    found = verify(recording)
    assert f"open/{opened(recording).name}/journal" in {trouble.place for trouble in found.troubles}
    assert not found.whole


def test_a_segment_whose_first_line_was_never_finished_is_torn(recording: Path):
    place = recording / "open" / "00000004-20200101T000000Z"
    place.mkdir()
    (place / "journal").write_bytes(b"1234")
    assert only(recording, TORN) == f"open/{place.name}"


def test_a_torn_status_is_damage_and_a_good_one_is_not(recording: Path):
    (recording / "status.json").write_text(json.dumps({"state": "recording"}))
    assert told(recording) == []
    (recording / "status.json").write_text('{"state": ')
    assert only(recording, DAMAGED) == "status.json"


def test_a_stack_file_that_perf_did_not_write_is_damage(recording: Path):
    of_a_pipe = b"PERFILE2" + (16).to_bytes(8, "little")
    (recording / "stacks" / "perf.data.20261115101500").write_bytes(of_a_pipe)
    checks = Checks(perf=check_perf)
    assert verify(recording, checks=checks).troubles == []
    (recording / "stacks" / "perf.data.20261115101700").write_bytes(b"zeros")
    (trouble,) = verify(recording, checks=checks).troubles
    assert trouble == (DAMAGED, "stacks/perf.data.20261115101700", "not a perf.data file")


def test_progress_goes_through_every_segment(recording: Path):
    seen: list[tuple[int, int]] = []
    verify(recording, lambda done, total: seen.append((done, total)))
    assert seen == [(0, 3), (1, 3), (2, 3)]
