"""The list of runs in a compacted hour: it changes what is decoded, never what is found."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sexton.model.rows.cpu import Interrupt
from sexton.model.rows.memory import VmCounter
from sexton.model.window import Batch, Columns
from sexton.replay.span import Span
from sexton.replay.span_reader import SpanReader
from sexton.store import compaction, sealed
from sexton.store.compaction import compact
from sexton.store.recording import Recording
from sexton.store.retention import Limits, drop_replaced
from sexton.store.runs import LISTED, Runs, by_thing, decoded, encoded, joined, pieces, runs_of
from sexton.store.sealed import TableFile
from sexton.store.verify import verify
from tests.support.recordings import BOOT, WALL_S, replace_table, table_of, write_sealed

START_S = 3600.0 - WALL_S % 3600
NAMES = ["pgfault", "a\udcff\x1b[0m", *(f"counter_{number}" for number in range(6))]

STILL = ("counter_1", "counter_2", "counter_3")


@pytest.fixture(params=[400, 100, 1000], ids=["whole runs", "parts of runs", "unlike runs"])
def hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """An hour of row groups of whole runs, of parts of one, or of runs of which some are shorter: a
    counter goes and comes back. Some never change."""
    monkeypatch.setattr(compaction, "_MOST_ROWS", 1_500)
    monkeypatch.setattr(compaction, "_GROUP_ROWS", request.param)
    for index in range(10):
        batches = []
        for second in range(60):
            mono = START_S + 60 * index + second
            there = [name for name in NAMES if name != "counter_3" or index not in (3, 4)]
            rows = tuple(VmCounter(name, value_of(name, mono)) for name in there)
            batches.append(Batch(mono, WALL_S + mono, rows))
        write_sealed(tmp_path, [{VmCounter: batches}], 1 + index)
    done = compact(tmp_path, Limits(1e12, 1 << 40), settled_s=None)
    assert (done.segments, done.problems) == (1, [])
    drop_replaced(tmp_path / "segments")
    return tmp_path


#: Row groups of the same readings of each thing.
EVEN = pytest.mark.parametrize("hour", [400, 100], indirect=True)


def value_of(name: str, mono: float) -> int:
    return 7 if name in STILL else int(mono) + len(name)


def reader_of(place: Path) -> SpanReader:
    return SpanReader(Recording(place), Span(BOOT, (0.0, 0.0), (1e12, 1e12)))


def laid_out(pieces: list[Columns]) -> list[tuple[object, ...]]:
    return [
        (thing, mono, follows, value)
        for piece in pieces
        for thing, row in zip(piece.things, piece.values["value"].tolist(), strict=True)
        for mono, follows, value in zip(piece.mono, piece.follows, row, strict=True)
        if not np.isnan(value)
    ]


NEAR = [(START_S + 100, START_S + 130), (START_S + 500, START_S + 520)]


@pytest.mark.parametrize("near", [None, NEAR], ids=["all", "near"])
@pytest.mark.parametrize("wanted", [None, ("pgfault",), ("counter_3",), ("no such",)])
def test_what_is_found_is_the_same_with_and_without_the_list(hour, monkeypatch, wanted, near):
    chosen = None if wanted is None else lambda thing: thing == wanted

    def found():
        return laid_out(list(reader_of(hour).columns(VmCounter, ("value",), chosen, near)))

    listed = found()
    monkeypatch.setattr(TableFile, "runs", lambda *_: None)
    assert found() == listed
    monkeypatch.setattr(TableFile, "times", lambda *_: (-np.inf, np.inf))
    assert found() == listed
    assert bool(listed) == (wanted != ("no such",))


@EVEN
def test_only_row_groups_that_hold_what_is_wanted_are_decoded(hour, monkeypatch):
    read: list[int] = []
    original = TableFile.read

    def reading(self, columns=None, groups=None):
        if "value" in (columns or ()):
            read.extend(range(self.num_row_groups) if groups is None else groups)
        return original(self, columns, groups)

    monkeypatch.setattr(TableFile, "read", reading)
    list(reader_of(hour).columns(VmCounter, ("value",)))
    every, read[:] = len(read), []
    list(reader_of(hour).columns(VmCounter, ("value",), lambda thing: thing == ("pgfault",)))
    few, read[:] = len(read), []
    list(reader_of(hour).columns(VmCounter, ("value",), None, NEAR[:1]))
    assert 0 < few < every / 2
    assert 0 < len(read) < every


def test_an_hour_of_wide_rows_is_cut_by_time_and_reads_back_the_same(tmp_path, monkeypatch):
    """An interrupt has a number for each core: an hour of them in one piece is decoded for seconds
    of it."""
    monkeypatch.setattr(compaction, "_MOST_LISTED", 2 * 60 * 2 * 2 * 8)  # of two minutes
    every = []
    for index in range(6):
        batches = []
        for second in range(60):
            mono = START_S + 60 * index + second
            counts = tuple(int(mono) + core for core in range(8))
            rows = tuple(Interrupt(irq, "eth0", tuple(range(8)), counts) for irq in ("33", "34"))
            batches.append(Batch(mono, WALL_S + mono, rows))
        every += batches
        write_sealed(tmp_path, [{Interrupt: batches}], 1 + index)
    assert compact(tmp_path, Limits(1e12, 1 << 40), settled_s=None).segments == 1
    drop_replaced(tmp_path / "segments")
    segment = next((tmp_path / "segments").iterdir())
    assert parquet(segment, "interrupt").num_row_groups == 3
    found = reader_of(tmp_path).between(Interrupt, START_S + 130, START_S + 140)
    assert [batch.rows for batch in found] == [batch.rows for batch in every[130:141]]
    assert verify(tmp_path).whole


@pytest.mark.parametrize("listed", [True, False])
def test_a_file_is_opened_once(hour, monkeypatch, listed):
    opened: list[str] = []
    original = sealed.open_table

    def opening(directory, name, *arguments):
        opened.append(name)
        return original(directory, name, *arguments)

    reader = reader_of(hour)
    monkeypatch.setattr(sealed, "open_table", opening)
    if not listed:
        monkeypatch.setattr(TableFile, "runs", lambda *_: None)
    assert list(reader.columns(VmCounter, ("value",)))
    assert reader.distinct(VmCounter, ("name",))
    assert opened.count("vm_counter") == 1


def test_what_was_read_is_not_sent_to_another_process(hour):
    (segment,) = Recording(hour).segments
    before = len(pickle.dumps(segment))
    assert segment.file(VmCounter) is segment.file(VmCounter)
    assert segment.readings(coded=("table",)) is segment.readings(coded=("table",))
    sent = pickle.dumps(segment)
    assert len(sent) == before
    assert pickle.loads(sent).file(VmCounter).rows == segment.rows(VmCounter)


def test_names_are_known_without_reading_a_row(hour, monkeypatch):
    monkeypatch.setattr(TableFile, "read", lambda *_: pytest.fail("a column was decoded"))
    found = reader_of(hour).distinct(VmCounter, ("name",))
    assert sorted(found) == sorted((name,) for name in NAMES)


@pytest.mark.parametrize("fields", [("value", "name"), ("name", "value"), ("value",)])
def test_what_a_name_was_read_with_is_known_without_decoding_names(hour, monkeypatch, fields):
    monkeypatch.setattr(TableFile, "runs", lambda *_: None)
    expected = set(reader_of(hour).distinct(VmCounter, fields))
    monkeypatch.undo()
    read = TableFile.read

    def reading(self, columns=None, groups=None):
        assert columns == ["value"]
        return read(self, columns, groups)

    monkeypatch.setattr(TableFile, "read", reading)
    found = reader_of(hour).distinct(VmCounter, fields)
    assert set(found) == expected
    pairs = {(name, value_of(name, START_S + second)) for name in NAMES for second in range(600)}
    if fields == ("name", "value"):
        assert expected == pairs


@EVEN
def test_a_counter_that_never_changed_is_not_decoded(hour, monkeypatch):
    every = {"columns": [], "times": 0}
    read, first_times = TableFile.read, TableFile.first_times

    def reading(self, columns=None, groups=None):
        every["columns"] += [*(columns or ())] if groups != [] else []
        return read(self, columns, groups)

    def timing(self, group, number):
        every["times"] += 1
        return first_times(self, group, number)

    def found(name):
        pieces = reader_of(hour).columns(VmCounter, ("value",), lambda thing: thing == (name,))
        return [value for _, _, _, value in laid_out(list(pieces))]

    monkeypatch.setattr(TableFile, "read", reading)
    monkeypatch.setattr(TableFile, "first_times", timing)
    assert found("counter_1") == [7.0] * 600
    assert "value" not in every["columns"]
    assert 0 < every["times"] < 10
    assert found("pgfault") == [value_of("pgfault", START_S + second) for second in range(600)]
    assert "value" in every["columns"]
    assert "read_mono_s" not in every["columns"], "the times of one run are those of all"


def parquet(segment: Path, name: str) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(table_of(segment, name)))


def with_list(hour: Path, change) -> None:
    """Change the list of runs in the file of an hour's counters."""
    (segment,) = (hour / "segments").iterdir()
    source = parquet(segment, "vm_counter")
    groups = [source.read_row_group(at) for at in range(source.num_row_groups)]
    listed = json.loads(source.metadata.metadata[LISTED])
    change(listed)
    made = pa.BufferOutputStream()
    with pq.ParquetWriter(made, groups[0].schema, store_schema=False) as writer:
        for group in groups:
            writer.write_table(group)
        writer.add_key_value_metadata({LISTED: json.dumps(listed)})
    replace_table(segment, "vm_counter", made.getvalue().to_pybytes())


def _other_things(listed):
    listed["things"][0], listed["things"][1] = listed["things"][1], listed["things"][0]


def _other_values(listed):
    listed["still"][1] = [
        [None if value is None else 8 for value in group] for group in listed["still"][1]
    ]


def _other_times(listed):
    """As if the last row group were of the readings of the first with runs as long."""
    lengths = [group[1][0] for group in listed["groups"]]
    first = next(at for at, even in enumerate(listed["even"]) if even is not None)
    last = max(
        at
        for at, (even, number) in enumerate(zip(listed["even"], lengths, strict=True))
        if even is not None and number == lengths[first]
    )
    assert listed["even"][last] != first
    listed["even"][last] = first


@EVEN
@pytest.mark.parametrize("change", [_other_things, _other_values, _other_times])
def test_a_list_that_is_not_what_the_columns_say_is_damage(hour, change):
    assert verify(hour).whole
    with_list(hour, change)
    (trouble,) = verify(hour).troubles
    assert "its list of runs" in trouble.detail


def _without_more(listed):
    del listed["even"], listed["still"]


def _impossible_values(listed):
    listed["still"][1] = [[-(2**70)] * len(group) for group in listed["still"][1]]


def _other_column(listed):
    listed["still"][0] = "no such"


@pytest.mark.parametrize("change", [_without_more, _impossible_values, _other_column])
def test_without_what_else_a_list_says_the_columns_are_read(hour, change):
    """Files of an older version, and lists that cannot be true."""

    def found(name):
        pieces = reader_of(hour).columns(VmCounter, ("value",), lambda thing: thing == (name,))
        return laid_out(list(pieces))

    before = [found("counter_1"), found("pgfault")]
    with_list(hour, change)
    assert [found("counter_1"), found("pgfault")] == before


GROUPS = [
    Runs(np.array([0, 64]), [("a", 1), ("b", None)], 100),
    Runs(np.array([0]), [("b", None)], 50),
]


def test_a_list_comes_back_as_it_was():
    listed = encoded(("name", "cpu"), GROUPS)
    assert listed is not None
    again = decoded(listed, ("name", "cpu"), [100, 50])
    assert again is not None
    assert all(one.agrees(other) for one, other in zip(again, GROUPS, strict=True))
    whole = joined(again)
    assert (whole.starts.tolist(), whole.things, whole.rows) == (
        [0, 64],
        [("a", 1), ("b", None)],
        150,
    ), "a run goes on in the next row group"


def test_there_is_no_list_where_runs_are_short():
    short = Runs(np.arange(100), [(number,) for number in range(100)], 100)
    assert encoded(("pid",), [short]) is None
    assert encoded((), GROUPS) is None


@pytest.mark.parametrize(
    "listed",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b'{"keys":["name"],"things":[["a"]],"groups":[[[0],[100]]]}',
        b'{"keys":["name","cpu"],"things":[["a"]],"groups":[[[0],[100]],[[0],[50]]]}',
        b'{"keys":["name","cpu"],"things":[["a",[]]],"groups":[[[0],[100]],[[0],[50]]]}',
        b'{"keys":["name","cpu"],"things":[["a",1]],"groups":[[[0],[99]],[[0],[50]]]}',
        b'{"keys":["name","cpu"],"things":[["a",1]],"groups":[[[1],[100]],[[0],[50]]]}',
        b'{"keys":["name","cpu"],"things":[["a",1]],"groups":[[[-1],[100]],[[0],[50]]]}',
        b'{"keys":["name","cpu"],"things":[["a",1]],"groups":[[[0,0],[150,-50]],[[0],[50]]]}',
        b'{"keys":["name","cpu"],"things":[["a",1]],"groups":[[[0],[1e400]],[[0],[50]]]}',
        b'{"keys":["name","cpu"],"things":[["a",1]],"groups":[[["x"],[100]],[[0],[50]]]}',
        b'{"keys":["name","cpu"],"things":7,"groups":[[[0],[100]],[[0],[50]]]}',
        b'{"keys":["name","cpu"],"things":[["a",1]],"groups":[[[0],[100]],[[],[]]]}',
        *(
            b'{"keys":["name","cpu"],"things":[["a",1]],"groups":[[[0],[100]],[[0],[50]]],%s}'
            % more
            for more in (
                b'"even":[0]',
                b'"even":[0,0]',
                b'"even":[0,7]',
                b'"even":["0",1]',
                b'"even":7',
                b'"still":["value",[[1],[1,2]]]',
                b'"still":["value",[[1],["1"]]]',
                b'"still":["value",[[1],[1.5]]]',
                b'"still":["value",[[1]]]',
                b'"still":[]',
                b'"still":null',
            )
        ),
    ],
)
def test_what_is_no_list_is_not_used(listed):
    assert decoded(listed, ("name", "cpu"), [100, 50]) is None


def test_neighbours_are_one_piece():
    runs = Runs(np.array([0, 10, 30, 60]), [("a",), ("b",), ("c",), ("d",)], 100)
    assert pieces([0, 1, 3], runs) == [(0, 30), (60, 40)]
    assert pieces([], runs) == []


def test_the_clocks_of_a_segment_are_put_in_order_once(hour):
    """Each stack of a verdict asks for the wall time of its second."""
    (segment,) = reader_of(hour).segments
    assert segment.clock() is segment.clock()


def test_a_table_by_reading_becomes_one_by_thing():
    """As it is while its segment is open; what is together already stays as it is."""
    names = ["b", None, "a"] * 3
    read = pa.table({"name": names, "cpu": [1, 2, 1] * 3, "value": list(range(9))})
    together = by_thing(read, ("name", "cpu", "no such column"))
    runs = runs_of(together, ("name", "cpu"))
    assert {*runs.things} == {("b", 1), (None, 2), ("a", 1)}
    assert runs.lengths.tolist() == [3, 3, 3]
    for at in runs.starts.tolist():
        values = together["value"].to_pylist()[at : at + 3]
        assert values == sorted(values)
    assert by_thing(together, ("name", "cpu")) is together
    assert by_thing(read, ()) is read
