"""Parts of a recording in other hands: complete, in order, safe, and never over something else."""

from __future__ import annotations

import csv
import json
import os
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sexton.errors import StoreError
from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.recorder import Mark
from sexton.model.text import printable
from sexton.model.window import Batch
from sexton.store.export import (
    Span,
    Wanted,
    conformed,
    export_recording,
    export_tables,
    span_of,
    touched,
)
from sexton.store.pins import Pin, add_pin, pins_in
from sexton.store.recording import Recording
from sexton.store.schema import schema_of
from sexton.store.sealed import seal
from sexton.store.verify import verify
from tests.support.annexes import annex, samples
from tests.support.profiles import profile_of
from tests.support.recordings import (
    BOOT,
    HOSTILE,
    WALL_S,
    damage_table,
    simple,
    table_of,
    write_open,
    write_sealed,
)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Two sealed segments and an open one, a hundred seconds apart."""
    place = tmp_path / "rec"
    write_sealed(place, [simple(100.0)], 1)
    write_sealed(place, [simple(200.0)], 2)
    write_open(place, [simple(300.0)], 3)
    return place


def pin(start_s: float, end_s: float, boot_id: str = BOOT) -> Pin:
    return Pin("p1", "mark", "job 17 died", "", boot_id, start_s, end_s, WALL_S + start_s)


def files_under(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


def test_parquet_has_every_row_of_every_segment_in_the_order_of_time(recording: Path, tmp_path):
    made = export_tables(Recording(recording), tmp_path / "out", Wanted())
    assert {(part.path.name, part.rows) for part in made} == {
        ("core_times.parquet", 12),
        ("mark.parquet", 9),
    }
    found = pq.read_table(tmp_path / "out/core_times.parquet")
    times = found.column("read_mono_s").to_pylist()
    assert times == sorted(times)
    assert found.column("read_position").to_pylist() == [0, 1] * 6
    assert found.schema.equals(schema_of(CoreTimes))


@pytest.mark.parametrize(
    ("span", "rows"),
    [
        (Span(WALL_S + 200, WALL_S + 250), 4),
        (Span(WALL_S + 201, WALL_S + 300), 4),
        (Span(200.0, 200.5, BOOT), 2),
        (Span(0.0, 9e9), 12),
    ],
)
def test_a_span_takes_its_rows_and_no_others(recording: Path, tmp_path: Path, span, rows):
    wanted = Wanted([CoreTimes], [span])
    (made,) = export_tables(Recording(recording), tmp_path / "out", wanted)
    assert made.rows == rows


def test_spans_that_overlap_give_each_row_once(recording: Path, tmp_path: Path):
    spans = [Span(WALL_S + 100, WALL_S + 101), Span(100.0, 201.0, BOOT), Span(0.0, 1.0)]
    (made,) = export_tables(Recording(recording), tmp_path / "out", Wanted([CoreTimes], spans))
    assert made.rows == 8


def test_the_monotonic_clock_of_another_boot_is_none_of_ours(recording: Path):
    assert touched(Recording(recording), [Span(0.0, 1e9, "another")]) == []
    assert len(touched(Recording(recording), [Span(0.0, 1e9, BOOT)])) == 3


def hostile(tmp_path: Path, names: list[str]) -> Recording:
    place = tmp_path / "hostile"
    rows: tuple[Row, ...] = tuple(Mark(name) for name in names)
    write_sealed(place, [{Mark: [Batch(1.0, 1.0, rows)]}], 1)
    return Recording(place)


def test_json_lines_hold_hostile_names_escaped_one_row_a_line(tmp_path: Path):
    recording = hostile(tmp_path, HOSTILE)
    export_tables(recording, tmp_path / "out", Wanted(format="jsonl"))
    content = (tmp_path / "out/mark.jsonl").read_bytes()
    assert content.isascii()
    rows = [json.loads(line) for line in content.decode().splitlines()]
    assert [row["text"] for row in rows] == [printable(name) for name in HOSTILE]
    assert rows[0]["read_wall_s"] == 1.0


def test_csv_holds_hostile_names_escaped_and_no_formula(tmp_path: Path):
    names = [*HOSTILE, '=HYPERLINK("http://x","y")', "+1", "-.slice", "@SUM(A1)", 'a"b,c\r\nd']
    recording = hostile(tmp_path, names)
    export_tables(recording, tmp_path / "out", Wanted(format="csv"))
    with (tmp_path / "out/mark.csv").open(newline="", encoding="utf-8") as stream:
        texts = [row["text"] for row in csv.DictReader(stream)]
    assert len(texts) == len(names)
    for text, name in zip(texts, names, strict=True):
        assert not text.startswith(("=", "+", "-", "@"))
        assert text.removeprefix("'") == printable(name).removeprefix("'")
    raw = (tmp_path / "out/mark.csv").read_bytes()
    assert b"\x1b" not in raw
    assert b"\0" not in raw


def test_what_is_unknown_is_empty(tmp_path: Path):
    from sexton.model.rows.recorder import RecorderCost

    place = tmp_path / "rec"
    cost = RecorderCost(1, 2, None, 4, 5, 6, 7)
    write_sealed(place, [{RecorderCost: [Batch(1.0, 1.0, (cost,))]}], 1)
    export_tables(Recording(place), tmp_path / "c", Wanted([RecorderCost], format="csv"))
    assert (tmp_path / "c/recorder_cost.csv").read_text().splitlines()[1] == "1,1,0,1,2,,4,5,6,7"


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_a_table_asked_for_by_name_is_made_even_without_rows(recording: Path, tmp_path, form):
    span = Span(WALL_S + 101.5, WALL_S + 150)
    (made,) = export_tables(Recording(recording), tmp_path / "o", Wanted([Mark], [span], form))
    assert made.rows == 0
    assert made.path.exists()


def test_nothing_is_overwritten_unless_forced_and_nothing_is_left_aside(recording, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mark.csv").write_text("precious")
    with pytest.raises(StoreError, match=r"mark\.csv: already exists"):
        export_tables(Recording(recording), out, Wanted(format="csv"))
    assert files_under(out) == {"mark.csv"}
    export_tables(Recording(recording), out, Wanted(format="csv", force=True))
    assert "precious" not in (out / "mark.csv").read_text()
    assert files_under(out) == {"mark.csv", "core_times.csv"}


def test_files_are_for_their_owner_alone(recording: Path, tmp_path: Path):
    before = os.umask(0)
    try:
        export_tables(Recording(recording), tmp_path / "tables", Wanted())
        whole = Recording(recording)
        export_recording(whole, tmp_path / "whole", whole.segments, [])
    finally:
        os.umask(before)
    for out in ("tables", "whole"):
        modes = {
            (path.is_dir(), stat.S_IMODE(path.stat().st_mode))
            for path in [tmp_path / out, *(tmp_path / out).rglob("*")]
        }
        assert modes == {(True, 0o700), (False, 0o600)}


def test_a_damaged_table_is_left_out_and_told(recording: Path, tmp_path: Path):
    damage_table(sorted((recording / "segments").iterdir())[0], "mark")
    read = Recording(recording)
    made = {table.path.name: table.rows for table in export_tables(read, tmp_path / "o", Wanted())}
    assert made == {"core_times.parquet": 12, "mark.parquet": 6}
    assert any("mark.parquet" in problem for problem in read.problems)


def test_a_table_of_another_version_is_brought_into_todays_columns():
    schema = schema_of(CoreTimes)
    old = pa.table({"read_mono_s": [1.0], "cpu": [3], "of_the_future": ["x"]})
    found = conformed(old, schema)
    assert found.column_names == schema.names
    assert found.column("cpu").to_pylist() == [3]
    assert found.column("steal_ms").to_pylist() == [None]


def test_a_part_as_a_recording_is_a_whole_recording_with_its_pin(recording: Path, tmp_path: Path):
    add_pin(recording, pin(195.0, 205.0))
    (recording / "rings" / "at.parquet").write_bytes(b"ring" * 700_000)
    os.utime(recording / "rings" / "at.parquet", (WALL_S + 205, WALL_S + 205))
    (recording / "rings" / "old.parquet").write_bytes(b"ring")
    os.utime(recording / "rings" / "old.parquet", (WALL_S - 900, WALL_S - 900))
    (recording / "stacks" / "perf.data").write_bytes(b"open")
    read = Recording(recording)
    pins, _ = pins_in(recording)
    chosen = touched(read, [span_of(pins[0])])
    number, held = export_recording(read, tmp_path / "part", chosen, pins)
    assert [segment.start for segment in Recording(tmp_path / "part").segments] == [
        (200, WALL_S + 200)
    ]
    assert pins_in(tmp_path / "part")[0] == pins
    found = files_under(tmp_path / "part")
    assert "rings/at.parquet" in found
    assert not {name for name in found if name.endswith(("old.parquet", "perf.data"))}
    assert number == len(found) - 1
    assert (tmp_path / "part/rings/at.parquet").read_bytes() == b"ring" * 700_000
    assert held > 2_800_000
    (tmp_path / "part/rings/at.parquet").unlink()
    assert verify(tmp_path / "part").troubles == []


def test_the_stacks_of_a_span_are_taken_though_another_segment_has_them(recording: Path):
    later = Recording(recording).segments[1]
    annex(later.path, profile_of(samples(start_s=later.start[0] - 60.0, seconds=70)))
    before = [Span(later.start[0] - 50.0, later.start[0] - 40.0, BOOT)]
    assert later.name in [segment.name for segment in touched(Recording(recording), before)]


def test_of_an_open_segment_only_what_counts_is_taken(recording: Path, tmp_path: Path):
    (opened,) = (recording / "open").iterdir()
    for name in ("journal", "mark.rows"):
        with (opened / name).open("ab") as stream:
            stream.write(b"half a flush")
    read = Recording(recording)
    export_recording(read, tmp_path / "part", read.segments, [])
    assert verify(tmp_path / "part").troubles == []
    assert len(Recording(tmp_path / "part").segments) == 3


def test_a_segment_that_is_sealed_under_our_eyes_is_taken_sealed(recording: Path, tmp_path: Path):
    read = Recording(recording)
    (opened,) = (recording / "open").iterdir()
    seal(opened, recording / "segments")
    export_recording(read, tmp_path / "part", read.segments, [])
    assert verify(tmp_path / "part").troubles == []
    assert [segment.sealed for segment in Recording(tmp_path / "part").segments] == [True] * 3


def test_a_recording_is_never_written_over_something(recording: Path, tmp_path: Path):
    read = Recording(recording)
    (tmp_path / "out").mkdir()
    with pytest.raises(StoreError, match="already exists"):
        export_recording(read, tmp_path / "out", read.segments, [])
    assert files_under(tmp_path / "out") == set()


def test_a_hostile_manifest_leads_nothing_out_of_the_directory(tmp_path: Path):
    place = tmp_path / "rec"
    segment = write_sealed(place, [simple(100.0)], 1)
    (place / "stolen.parquet").write_bytes(table_of(segment, "mark"))
    read = Recording(place)
    tables = read.segments[0].manifest["tables"]
    tables["../../stolen"] = tables.pop("mark")
    del tables["../../stolen"]["offset"]
    export_recording(read, tmp_path / "deep/er/out", read.segments, [])
    found = files_under(tmp_path / "deep")
    assert any(name.endswith("tables.zip") for name in found)
    assert not {name for name in found if "stolen" in name}
