"""Recordings of other versions: older ones stay readable, newer ones are told."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sexton.model.row import Row, fields_of
from sexton.model.window import Batch
from sexton.store.layout import prepare
from sexton.store.pins import pins_in
from sexton.store.recording import Recording
from sexton.store.schema import FORMAT, READINGS, encode, tables
from sexton.store.sealed import Contents, ordered, seal, write_segment
from sexton.store.verify import Trouble, verify
from tests.support import formats
from tests.support.recordings import (
    HEADER,
    cores,
    manifest_of,
    marks,
    resign,
    scratch,
    shown,
    simple,
    write_open,
    write_sealed,
)

IGNORED = "not written by a recorder; ignored"
MARK, CORE, UNIT = tables()["mark"], tables()["core_times"], tables()["unit"]


@pytest.mark.parametrize("number", formats.PLACES)
def test_each_formats_recording_reads_as_it_did_when_it_was_made(number: int):
    with scratch() as place:  # git keeps neither modes nor empty directories
        shutil.copytree(formats.PLACES[number], place, dirs_exist_ok=True)
        recording = Recording(place)
        expected = (place / "expected.txt").read_text()
        assert recording.problems == []
        assert [segment.sealed for segment in recording.segments] == [True, False]
        assert formats.described(recording) == expected
        assert "saturated_core present" in expected
        assert [pin.detail for pin in pins_in(place)[0]] == ["job 17 died"]
        seal(recording.segments[1].path, place / "segments")
        assert formats.described(Recording(place)) == expected

        assert verify(place).troubles == [Trouble("foreign", "expected.txt", IGNORED)]


def test_the_newest_fixture_is_what_this_version_would_still_make():
    """So the test above is about what we write, too."""
    with scratch() as place:
        formats.make(place / "made")
        made = (place / "made" / "expected.txt").read_text()
        assert made == (formats.PLACES[FORMAT] / "expected.txt").read_text()


@pytest.mark.parametrize("number", formats.PLACES)
def test_the_fixtures_are_small(number: int):
    files = [path for path in formats.PLACES[number].rglob("*") if path.is_file()]
    assert len(files) > (15 if number == 1 else 5)
    assert sum(path.stat().st_size for path in files) < 60_000


def write_other(directory: Path, kind: type[Row], name: str, change: Any) -> Path:
    """A sealed segment whose table is another version's."""
    rows = marks(2, 5.0) if kind is MARK else unit_batch()
    found, _ = encode(kind, [rows])
    content = change(pa.Table.from_batches([found]))
    readings = pa.table(
        [[name], [rows.mono_s], [rows.wall_s], pa.array([len(rows.rows)], pa.int32())],
        schema=READINGS,
    )
    prepare(directory)
    made = {kind: content} if name in tables() else {}
    unknown = {} if made else {name: content}
    contents = Contents(HEADER, made, readings, (), unknown)
    return write_segment(directory / "segments", "00000001-20240101T000000Z", contents)


def unit_batch() -> Batch[Any]:
    values = dict.fromkeys(fields_of(UNIT))
    values |= {"name": "a.service", "load_state": "loaded", "active_state": "active"}
    values |= {"sub_state": "running", "restarts": 3, "cgroup_origin": ""}
    return Batch(5.0, 6.0, (UNIT(**values),))


def test_a_field_that_did_not_exist_yet_reads_as_none(tmp_path: Path):
    write_other(tmp_path, UNIT, "unit", lambda found: found.drop_columns(["restarts", "cgroup"]))
    recording = Recording(tmp_path)
    (batch,) = recording.segments[0].batches(UNIT)
    assert (batch.rows[0].name, batch.rows[0].restarts, batch.rows[0].cgroup) == (
        "a.service",
        None,
        None,
    )
    assert recording.problems == []


def test_columns_are_found_by_name_and_not_by_place(tmp_path: Path):
    write_other(tmp_path, UNIT, "unit", lambda found: found.select(found.column_names[::-1]))
    (batch,) = Recording(tmp_path).segments[0].batches(UNIT)
    assert shown([batch]) == shown([unit_batch()])


def test_a_column_of_a_later_version_is_skipped_and_told_once(tmp_path: Path):
    write_other(
        tmp_path, MARK, "mark", lambda found: found.append_column("colour", pa.array(["a", "b"]))
    )
    recording = Recording(tmp_path)
    for _ in range(2):
        assert shown(recording.segments[0].batches(MARK)) == shown([marks(2, 5.0)])
    assert recording.problems == ["mark.colour: a column this version does not know, skipped"]


def test_a_table_of_a_later_version_is_skipped_and_told_once(tmp_path: Path):
    write_other(tmp_path, MARK, "gpu_fault", lambda found: found)
    recording = Recording(tmp_path)
    assert len(recording.segments) == 1
    assert recording.problems == ["gpu_fault: a table this version does not know, skipped"]


def test_an_unknown_table_that_was_left_open_is_sealed_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A downgrade must not cost what the upgrade recorded."""
    opened = write_open(tmp_path, [simple(1.0)])
    known = {name: kind for name, kind in tables().items() if kind is not MARK}
    for module in ("sealed", "recording"):
        monkeypatch.setattr(f"sexton.store.{module}.tables", lambda: known)
    recording = Recording(tmp_path)
    assert recording.problems == ["mark: a table this version does not know, skipped"]
    whole, _ = seal(opened, tmp_path / "segments")
    assert shown(Recording(tmp_path).segments[0].batches(CORE)) == shown(simple(1.0)[CORE])
    monkeypatch.undo()
    recording = Recording(tmp_path)
    assert shown(recording.segments[0].batches(MARK)) == shown(simple(1.0)[MARK])
    assert recording.problems == []
    assert manifest_of(whole)["tables"]["mark"]["rows"] == 3


def test_a_higher_format_is_refused_by_name_and_the_others_are_read(tmp_path: Path):
    newer = write_sealed(tmp_path, [simple(1.0)], sequence=1)
    write_sealed(tmp_path, [simple(9.0)], sequence=2)
    write_open(
        tmp_path, [simple(20.0)], sequence=3, header={**HEADER, "schema": "sexton.recording/7"}
    )
    resign(newer, {"schema": f"sexton.recording/{FORMAT + 1}", "anything": "else"})
    recording = Recording(tmp_path)
    assert [segment.sequence for segment in recording.segments] == [2]
    assert [problem.partition(": ")[2] for problem in recording.problems] == [
        "written by a newer Sexton (sexton.recording/7)",
        f"written by a newer Sexton (sexton.recording/{FORMAT + 1})",
    ]


def test_a_manifest_that_says_more_than_we_know_is_read(tmp_path: Path):
    whole = write_sealed(tmp_path, [simple(1.0)])
    document = manifest_of(whole)
    states = [[*state, "more"] for state in document["states"]]
    resign(whole, {**document, "states": states, "weather": "fine"})
    recording = Recording(tmp_path)
    assert [state.id for state in recording.segments[0].states] == ["procfs.stat"]
    assert recording.problems == []


def test_rows_that_lack_a_field_by_which_they_are_sorted_now_are_sealed_all_the_same():
    encoded, _ = encode(CORE, [cores(1.0)])
    older = pa.Table.from_batches([encoded]).drop_columns(["cpu"])
    assert ordered(CORE, older).num_rows == older.num_rows
