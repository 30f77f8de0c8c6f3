"""Torn tails and flipped bits: named, skipped and counted, and never taken for data."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.errors import StoreError
from sexton.model.window import Batch
from sexton.store import encoding, journal, sealed
from sexton.store.layout import MANIFEST, TABLES
from sexton.store.recording import Recording
from sexton.store.schema import tables
from sexton.store.sealed import seal
from tests.support.examples import examples
from tests.support.recordings import (
    manifest_of,
    replace_table,
    scratch,
    shown,
    simple,
    table_of,
    write_open,
    write_sealed,
)

MARK, CORE = tables()["mark"], tables()["core_times"]
KINDS = (CORE, MARK)
FLUSHES = [simple(float(start)) for start in (0, 10, 20, 30)]
EVERY = {kind: [batch for flush in FLUSHES for batch in flush[kind]] for kind in KINDS}
#: Nothing that is read from three small flushes may take more than this.
MOST_BYTES = 64 << 20


@pytest.fixture(scope="module")
def opened() -> Iterator[Path]:
    with scratch() as place:
        write_open(place, FLUSHES)
        yield place


@pytest.fixture(scope="module")
def whole() -> Iterator[Path]:
    with scratch() as place:
        write_sealed(place, FLUSHES)
        yield place


def read(directory: Path) -> tuple[dict[type, list[Batch[Any]]], list[str]]:
    """All that can be read, and what is told of the rest."""
    pa.default_memory_pool()
    recording = Recording(directory)
    found = {
        kind: [batch for segment in recording.segments for batch in segment.batches(kind)]
        for kind in KINDS
    }
    assert pa.total_allocated_bytes() < MOST_BYTES
    return found, recording.problems


def assert_is_part(found: dict[type, list[Batch[Any]]]) -> None:
    """Everything that is shown was flushed: the same readings, whole, in their order."""
    for kind in KINDS:
        known = [shown([batch]) for batch in EVERY[kind]]
        places = [known.index(shown([batch])) for batch in found[kind]]
        assert places == sorted(set(places))


def changed(directory: Path, name: str, content: bytes) -> Path:
    """The segment with one file that is another."""
    (segment,) = (path for place in ("open", "segments") for path in (directory / place).iterdir())
    (segment / name).write_bytes(content)
    return segment


FILES_OPEN = ["journal", "core_times.rows", "mark.rows", "reading.rows"]
FILES_SEALED = [MANIFEST, TABLES]


def content_of(directory: Path, name: str) -> bytes:
    (path,) = directory.glob(f"*/*/{name}")
    return path.read_bytes()


def last_flush_lost() -> dict[type, list[Batch[Any]]]:
    return {kind: EVERY[kind][:-2] for kind in KINDS}


def test_a_stream_torn_in_its_last_flush_loses_that_flush_only(opened: Path):
    """At every byte of what the last flush added."""
    lines, _ = journal.whole_lines(content_of(opened, "journal"))
    for name in ("core_times", "mark"):
        content = content_of(opened, f"{name}.rows")
        vouched = lines[-2]["ends"][name][0]
        for length in range(vouched, len(content), 7):
            with scratch() as place:
                shutil.copytree(opened, place, dirs_exist_ok=True)
                changed(place, f"{name}.rows", content[:length])
                found, problems = read(place)
                kind = tables()[name]
                # Empty readings stand in the list of readings, which is whole.
                lost = [EVERY[kind][-2]] if name == "mark" else EVERY[kind][-2:]
                kept = [batch for batch in EVERY[kind] if batch not in lost]
                assert shown(found[kind]) == shown(kept)
                assert any(
                    f"{name}.rows: 1 of 4 flushes damaged" in problem for problem in problems
                )
                other = MARK if kind is CORE else CORE
                assert shown(found[other]) == shown(EVERY[other])


def test_a_journal_torn_at_any_byte_loses_what_it_no_longer_vouches_for(opened: Path):
    content = content_of(opened, "journal")
    ends = [index + 1 for index, byte in enumerate(content) if byte == ord("\n")]
    for length in [*range(0, len(content), 5), *ends, *(end - 1 for end in ends)]:
        with scratch() as place:
            shutil.copytree(opened, place, dirs_exist_ok=True)
            changed(place, "journal", content[:length])
            found, problems = read(place)
            # A line without its line feed is whole.
            flushes = max(sum(length >= end - 1 for end in ends) - 1, 0)
            for kind in KINDS:
                assert shown(found[kind]) == shown(EVERY[kind][: 2 * flushes])
            torn = length not in ends and length + 1 not in ends
            if torn:
                assert any("torn" in problem or "no whole line" in problem for problem in problems)


@settings(max_examples=examples(60))
@given(st.data())
def test_a_file_cut_anywhere_never_shows_what_was_not_written(opened: Path, whole: Path, data):
    which = data.draw(st.sampled_from([(opened, FILES_OPEN), (whole, FILES_SEALED)]))
    name = data.draw(st.sampled_from(which[1]))
    content = content_of(which[0], name)
    length = data.draw(st.integers(0, len(content) - 1))
    with scratch() as place:
        shutil.copytree(which[0], place, dirs_exist_ok=True)
        changed(place, name, content[:length])
        found, problems = read(place)
        assert_is_part(found)
        if found != EVERY and name != "journal":
            assert any(name in problem for problem in problems)


@settings(max_examples=examples(150))
@given(st.data())
def test_a_flipped_bit_anywhere_is_named_and_never_shown_as_data(opened: Path, whole: Path, data):
    which = data.draw(st.sampled_from([(opened, FILES_OPEN), (whole, FILES_SEALED)]))
    name = data.draw(st.sampled_from(which[1]))
    content = bytearray(content_of(which[0], name))
    for bit in data.draw(st.lists(st.integers(0, len(content) * 8 - 1), min_size=1, max_size=3)):
        content[bit // 8] ^= 1 << bit % 8
    with scratch() as place:
        shutil.copytree(which[0], place, dirs_exist_ok=True)
        segment = changed(place, name, bytes(content))
        found, problems = read(place)
        assert_is_part(found)
        if any(shown(found[kind]) != shown(EVERY[kind]) for kind in KINDS):
            assert any(name in problem for problem in problems)
        if name.endswith(".rows") and not name.startswith("reading"):
            other = MARK if name.startswith("core") else CORE
            assert shown(found[other]) == shown(EVERY[other])
        if segment.parent.name == "open":  # and so does what is sealed from it
            seal(segment, place / "segments")
            after, _ = read(place)
            assert {kind: shown(after[kind]) for kind in KINDS} == {
                kind: shown(found[kind]) for kind in KINDS
            }


@settings(max_examples=examples(60))
@given(st.data(), st.binary(max_size=300))
def test_any_bytes_in_place_of_a_file_are_no_data(opened: Path, whole: Path, data, junk: bytes):
    which = data.draw(st.sampled_from([(opened, FILES_OPEN), (whole, FILES_SEALED)]))
    name = data.draw(st.sampled_from(which[1]))
    with scratch() as place:
        shutil.copytree(which[0], place, dirs_exist_ok=True)
        changed(place, name, junk)
        found, problems = read(place)
        assert_is_part(found)
        assert any(name.partition(".json")[0] in problem for problem in problems)


def test_without_the_list_of_readings_the_rows_still_tell_of_theirs(opened: Path, whole: Path):
    for directory, name in ((opened, "reading.rows"), (whole, "reading.parquet")):
        with scratch() as place:
            shutil.copytree(directory, place, dirs_exist_ok=True)
            if directory is opened:
                changed(place, name, b"")
            else:
                replace_table(next(place.glob("segments/*")), "reading", b"")
            found, problems = read(place)
            assert shown(found[CORE]) == shown(EVERY[CORE])
            assert shown(found[MARK]) == shown([batch for batch in EVERY[MARK] if batch.rows])
            assert any(name in problem for problem in problems)


def test_a_damaged_line_in_the_journals_middle_is_named_with_what_it_took_along(opened: Path):
    content = content_of(opened, "journal").splitlines(keepends=True)
    content[2] = b"0" + content[2][1:] if content[2][:1] != b"0" else b"1" + content[2][1:]
    with scratch() as place:
        shutil.copytree(opened, place, dirs_exist_ok=True)
        changed(place, "journal", b"".join(content))
        found, problems = read(place)
        assert shown(found[CORE]) == shown(EVERY[CORE][:2])
        assert any("a line is damaged, 2 flushes after it" in problem for problem in problems)


def test_a_line_with_a_checksum_and_no_sense_ends_the_journal(opened: Path):
    odd = [
        b"[]",
        b'{"ends":{"mark":[1]}}',
        b'{"ends":{"../x":[1,2]}}',
        b'{"ends":{"mark":["a",2]}}',
    ]
    odd += [b'{"ends":{"mark":[-5,0]}}', b'{"states":[["a"]]}', b"[" * 100_000, b'{"ends":7}']
    for text in odd:
        with scratch() as place:
            shutil.copytree(opened, place, dirs_exist_ok=True)
            line = b"%08x %s\n" % (zlib.crc32(text), text)
            changed(place, "journal", content_of(opened, "journal") + line)
            found, problems = read(place)
            assert shown(found[CORE]) == shown(EVERY[CORE])
            assert any("journal" in problem for problem in problems)


def test_arrow_parses_nothing_that_no_checksum_vouched_for(
    opened: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
):
    """Every byte that reaches Arrow's parsers, over hundreds of damaged copies, was written so."""
    (segment,) = whole.glob("segments/*")
    good = [table_of(segment, name) for name in manifest_of(segment)["tables"]]
    lines, _ = journal.whole_lines(content_of(opened, "journal"))
    pieces = set()
    for name in ("core_times", "mark", "reading"):
        content, start = content_of(opened, f"{name}.rows"), 0
        for line in lines[1:]:
            pieces.add(content[start : line["ends"][name][0]])
            start = line["ends"][name][0]
    parsed: list[bytes] = []

    def blocks(content: bytes, most: int) -> object:
        parsed.append(content)
        assert content in pieces, "a whole flush"
        return real_blocks(content, most)

    def parquet(source: pa.BufferReader, **how: object) -> pq.ParquetFile:
        content = source.getvalue().to_pybytes() if hasattr(source, "getvalue") else source.read()
        source.seek(0)
        parsed.append(content)
        assert content in good
        return real(source, **how)

    real, real_blocks = pq.ParquetFile, encoding.blocks_in
    monkeypatch.setattr("sexton.store.schema.blocks_in", blocks)
    monkeypatch.setattr(sealed.pq, "ParquetFile", parquet)
    for directory, names in ((opened, FILES_OPEN), (whole, FILES_SEALED)):
        for name in names:
            content = content_of(directory, name)
            for place_in in range(0, len(content), max(len(content) // 25, 1)):
                with scratch() as place:
                    shutil.copytree(directory, place, dirs_exist_ok=True)
                    flipped = bytearray(content)
                    flipped[place_in] ^= 0x10
                    changed(place, name, bytes(flipped))
                    assert_is_part(read(place)[0])
    assert len(parsed) > 100


def test_only_two_places_parse_arrow_and_both_look_at_the_checksum_first():
    """The guard above holds for these two; a third place would need its own."""
    store = Path(encoding.__file__).parent
    readers = (
        "open_stream(",
        "open_file(",
        "ParquetFile(",
        "read_table(p",
        "pq.read",
        "memory_map(",
    )
    calls = {
        (path.name, reader)
        for path in (
            store / f"{name}.py"
            for name in ("encoding", "journal", "schema", "sealed", "recording")
        )
        for reader in readers
        if reader in path.read_text()
    }
    assert calls == {("schema.py", "open_stream("), ("sealed.py", "ParquetFile(")}


def test_a_manifest_with_a_checksum_and_no_sense_is_refused(whole: Path):
    from tests.support.recordings import resign

    (segment,) = (whole / "segments").iterdir()
    good = manifest_of(segment)
    odd: list[Any] = [[], 3, None, {}, {**good, "tables": []}, {**good, "tables": {"a/b": {}}}]
    odd += [{**good, "tables": {"mark": 3}}, {**good, "tables": {"mark": {"crc32": 1}}}]
    odd += [{**good, "start": 3}, {**good, "end": ["a", "b"]}, {**good, "states": [["a"]]}]
    odd += [{**good, "schema": "other/1"}, {**good, "schema": "sexton.recording/x"}]
    mark = good["tables"]["mark"]
    for number in (float("nan"), float("inf"), 1e300, -1, "3", True, None):
        odd.append({**good, "tables": {"mark": {**mark, "rows": number}}})
        odd.append({**good, "tables": {"mark": {**mark, "first": [number, "a"]}}})
    for number in (float("nan"), float("inf"), 1e300, "3", True):
        odd += [{**good, "start": [number, 1.0]}, {**good, "end": [1.0, number]}]
    odd += [{**good, "providers": []}, {**good, "states": "abcdefgh"}, {**good, "end": None}]
    odd += [{**good, "tables": {f"t{n}": {} for n in range(3000)}}]
    for value in odd:
        with scratch() as place:
            shutil.copytree(whole, place, dirs_exist_ok=True)
            resign(place / "segments" / segment.name, value)
            recording = Recording(place)
            assert recording.segments == []
            assert [
                problem for problem in recording.problems if "is not a valid manifest" in problem
            ], value


def test_a_recording_that_is_none_is_refused_by_name(tmp_path: Path):
    with pytest.raises(StoreError, match="no such directory"):
        Recording(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="not a recording"):
        Recording(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="Not a directory"):
        Recording(tmp_path / "file")
