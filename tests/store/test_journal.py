"""An open segment that is read again while a recorder writes it: only what is new is decoded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.errors import NotRead
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.recorder import Mark
from sexton.store import journal, schema
from sexton.store.journal import JOURNAL, Recovered, recover
from sexton.store.layout import parse_name
from sexton.store.recording import Segment
from tests.support.recordings import scratch, simple, write_open

FLUSHES = 6


@pytest.fixture(scope="module")
def written() -> Iterator[Path]:
    with scratch() as place:
        yield write_open(place, [simple(10.0 * start) for start in range(FLUSHES)])


@pytest.fixture
def segment(written: Path, tmp_path: Path) -> Path:
    """A copy, to be cut and damaged."""
    return Path(shutil.copytree(written, tmp_path / written.name))


def lines_of(written: Path) -> list[bytes]:
    return (written / JOURNAL).read_bytes().splitlines(keepends=True)


def assert_same(found: Recovered, expected: Recovered) -> None:
    assert found.tables.keys() == expected.tables.keys()
    for name, rows in expected.tables.items():
        assert found.tables[name].equals(rows), name
    assert found._replace(tables={}) == expected._replace(tables={})


@pytest.mark.parametrize("seen", range(1, FLUSHES + 1))
def test_what_was_read_before_and_what_is_new_are_the_whole(
    segment: Path, written: Path, seen: int, monkeypatch: pytest.MonkeyPatch
):
    """The first line is the header."""
    (segment / JOURNAL).write_bytes(b"".join(lines_of(written)[: 1 + seen]))
    before = recover(segment)
    (segment / JOURNAL).write_bytes((written / JOURNAL).read_bytes())
    decoded: list[int] = []
    real = schema.read_stream
    monkeypatch.setattr(
        schema, "read_stream", lambda good, suffix: decoded.append(len(good)) or real(good, suffix)
    )
    found = recover(segment, before)
    assert sum(decoded) == 3 * (FLUSHES - seen)
    monkeypatch.undo()
    assert_same(found, recover(segment))


def test_a_journal_that_is_read_at_any_byte_of_a_flush_is_whole_in_the_end(
    segment: Path, written: Path
):
    content = (written / JOURNAL).read_bytes()
    header = len(lines_of(written)[0])
    known = None
    for length in [*range(header, len(content), 41), *(len(content) - 1, len(content))]:
        (segment / JOURNAL).write_bytes(content[:length])
        known = recover(segment, known)
        assert_same(known, recover(segment))


def test_a_new_flush_that_is_damaged_is_reported_as_in_a_whole_reading(
    segment: Path, written: Path
):
    (segment / JOURNAL).write_bytes(b"".join(lines_of(written)[:-1]))
    before = recover(segment)
    (segment / JOURNAL).write_bytes((written / JOURNAL).read_bytes())
    with (segment / "core_times.rows").open("r+b") as stream:
        stream.seek(-3, 2)
        stream.write(b"xyz")
    found = recover(segment, before)
    assert_same(found, recover(segment))
    assert any("1 of 6 flushes damaged" in problem for problem in found.problems)


def test_a_shorter_journal_is_read_from_its_beginning(segment: Path, written: Path):
    before = recover(segment)
    (segment / JOURNAL).write_bytes(b"".join(lines_of(written)[:3]))
    found = recover(segment, before)
    assert_same(found, recover(segment))
    assert found.length < before.length


def test_a_table_that_begins_late_is_found(tmp_path: Path):
    every = [simple(10.0 * start) for start in range(3)]
    (late,) = (kind for kind in every[0] if kind.__name__ == "Mark")
    flushes = [{k: v for k, v in flush.items() if k is not late} for flush in every[:2]]
    place = write_open(tmp_path / "recording", [*flushes, every[2]])
    content = (place / JOURNAL).read_bytes()
    (place / JOURNAL).write_bytes(b"".join(content.splitlines(keepends=True)[:-1]))
    before = recover(place)
    assert "mark" not in before.tables
    (place / JOURNAL).write_bytes(content)
    assert_same(recover(place, before), recover(place))


def test_what_was_read_before_stays_as_it_was(segment: Path, written: Path):
    """Readers keep the recording that they have."""
    (segment / JOURNAL).write_bytes(b"".join(lines_of(written)[:3]))
    before = recover(segment)
    rows = {name: found.num_rows for name, found in before.tables.items()}
    (segment / JOURNAL).write_bytes((written / JOURNAL).read_bytes())
    assert journal.recover(segment, before).tables["core_times"].num_rows > rows["core_times"]
    assert {name: found.num_rows for name, found in before.tables.items()} == rows


def test_only_some_tables_are_decoded_and_read_on(
    segment: Path, written: Path, monkeypatch: pytest.MonkeyPatch
):
    (segment / JOURNAL).write_bytes(b"".join(lines_of(written)[:3]))
    decoded: list[str] = []
    real = schema.checked_table
    monkeypatch.setattr(
        schema, "checked_table", lambda name, rows: decoded.append(name) or real(name, rows)
    )
    some = ("reading", "core_times")
    before = recover(segment, None, some)
    (segment / JOURNAL).write_bytes((written / JOURNAL).read_bytes())
    found = recover(segment, before, some)
    assert decoded == ["core_times", "reading"] * 2
    whole = recover(segment)
    assert found.tables.keys() == {*some}
    for name in some:
        assert found.tables[name].equals(whole.tables[name])
    assert found._replace(tables={}) == whole._replace(tables={})


def test_a_table_that_was_left_out_is_never_taken_for_an_empty_one(written: Path):
    class Partly(Segment):
        only = frozenset(("reading", "core_times"))

    name = parse_name(written.name)
    assert name is not None
    problems: list[str] = []
    found, whole = Partly(written, name, problems), Segment(written, name, problems)
    for kind in (CoreTimes, Mark):
        assert found.has(kind)
        assert found.rows(kind) == whole.rows(kind) > 0
        assert found.opens(kind)
    assert found.batches(CoreTimes) == whole.batches(CoreTimes)
    for read in (found.batches, found.table):
        with pytest.raises(NotRead, match="mark"):
            read(Mark)
    assert problems == []
