"""What was flushed is what is read, open and sealed, to the last bit and in the same order."""

from __future__ import annotations

import json
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.model.row import Row, fields_of, table
from sexton.model.window import Batch
from sexton.store.encoding import escape, unescape
from sexton.store.journal import OpenSegment
from sexton.store.layout import prepare, segment_name
from sexton.store.recording import Recording, Segment
from sexton.store.schema import POSITION, TIME, schema_of, tables
from sexton.store.sealed import seal
from tests.support.examples import examples
from tests.support.recordings import (
    BOOT,
    HEADER,
    KINDS,
    STATES,
    TEXT,
    batches_of,
    cores,
    marks,
    rows_of,
    scratch,
    shown,
    simple,
    write_open,
    write_sealed,
)
from tests.support.tools import need

WRITERS: list[Callable[..., Path]] = [write_open, write_sealed]
MARK, CORE = tables()["mark"], tables()["core_times"]


def only(directory: Path) -> Segment:
    """The one segment of a recording that has no problem."""
    recording = Recording(directory)
    assert recording.problems == []
    (segment,) = recording.segments
    return segment


@pytest.mark.parametrize("kind", KINDS, ids=table)
def test_every_row_class_comes_back_as_it_was(kind: type[Row]):
    @settings(max_examples=examples(8))
    @given(batches_of(kind), st.integers(0, 4), st.sampled_from(WRITERS))
    def comes_back(batches: list[Batch[Any]], cut: int, write: Callable[..., Path]) -> None:
        with scratch() as place:
            flushes = [{kind: batches[:cut]}, {kind: batches[cut:]}]
            write(place, flushes)
            segment = only(place)
            assert shown(segment.batches(kind)) == shown(batches)
            assert segment.has(kind)
            assert segment.rows(kind) == sum(len(batch.rows) for batch in batches)

    comes_back()


@given(TEXT)
def test_any_text_can_be_escaped_and_the_escaped_is_utf8(text: str):
    assert unescape(escape(text)) == text
    escape(text).encode()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_ordinary_text_is_stored_as_itself(text: str):
    assert escape(text) == text or text.startswith("\0")


@pytest.mark.parametrize("kind", KINDS, ids=table)
def test_a_table_has_the_times_and_the_fields_and_says_what_it_is(kind: type[Row]):
    schema = schema_of(kind)
    assert tuple(schema.names) == (*TIME, *fields_of(kind))
    assert schema.metadata[b"sexton.table"].decode() == table(kind)


def test_no_table_is_called_like_the_list_of_readings():
    assert "reading" not in tables()
    assert len(tables()) == len(set(tables().values()))


@pytest.mark.parametrize("write", WRITERS)
def test_a_segment_knows_its_boot_its_span_and_how_every_source_fared(tmp_path: Path, write):
    write(tmp_path, [simple(100.0), simple(200.0)])
    segment = only(tmp_path)
    assert segment.boot_id == BOOT
    assert (segment.start[0], segment.end[0]) == (100.0, 201.0)
    assert segment.end[1] - segment.start[1] == 101.0
    assert segment.states == STATES
    assert segment.providers == {MARK: "marks"}
    assert segment.manifest["host"] == HEADER["host"]
    assert segment.sealed == (write is write_sealed)


@pytest.mark.parametrize("write", WRITERS)
def test_an_empty_reading_is_kept_and_one_that_never_was_is_not_made_up(tmp_path: Path, write):
    write(tmp_path, [{MARK: [marks(0, 1.0), marks(0, 2.0)]}])
    segment = only(tmp_path)
    assert segment.batches(MARK) == [marks(0, 1.0), marks(0, 2.0)]
    assert segment.has(MARK)
    assert segment.rows(MARK) == 0
    assert not segment.has(CORE)
    assert segment.batches(CORE) == []


@pytest.mark.parametrize("write", WRITERS)
def test_a_table_can_be_asked_for_some_columns_and_for_ones_it_lacks(tmp_path: Path, write):
    write(tmp_path, [simple(1.0)])
    found = only(tmp_path).table(CORE, ["cpu", "no such column"])
    assert found.column_names == ["cpu"]
    assert found.num_rows == 4


def test_things_stand_together_in_a_sealed_table_and_in_time(tmp_path: Path):
    write_sealed(tmp_path, [{CORE: [cores(float(second), 3)]} for second in range(5)])
    found = only(tmp_path).table(CORE)
    assert found.column("cpu").to_pylist() == [0] * 5 + [1] * 5 + [2] * 5
    assert found.column("read_mono_s").to_pylist() == [0.0, 1.0, 2.0, 3.0, 4.0] * 3
    assert set(found.column(POSITION).to_pylist()) == {0, 1, 2}


def test_readings_of_one_moment_are_one_and_no_row_is_doubled(tmp_path: Path):
    write_sealed(tmp_path, [{MARK: [marks(2, 1.0), marks(1, 1.0)]}])
    (batch,) = only(tmp_path).batches(MARK)
    assert len(batch.rows) == 3


UNFIT = [
    (CORE, {"cpu": 2**63}),
    (CORE, {"cpu": -(2**63) - 1}),
    (CORE, {"cpu": "seven"}),
    (CORE, {"cpu": 1.5}),
    (tables()["nic_counter"], {"value": -1}),
    (tables()["nic_counter"], {"value": 2**64}),
    (MARK, {"text": 7}),
    (MARK, {"text": b"\xff"}),
    (MARK, {"text": ["a"]}),
    (tables()["interrupt"], {"counts": (1, 2**70)}),
    (tables()["interrupt"], {"counts": (1, 2.5)}),
    (tables()["interrupt"], {"counts": 5}),
    (tables()["stack_count"], {"frames": ("a", 3)}),
    (tables()["kernel_event"], {"fields": {"a": {1, 2}}}),
    (tables()["kernel_event"], {"fields": 3}),
    (tables()["kernel_event"], {"fields": {"a": 10**5000}}),
    (tables()["controller"], {"enabled": "yes"}),
    (tables()["alarm"], {"start_s": "soon"}),
]


@pytest.mark.parametrize(("kind", "lie"), UNFIT, ids=range(len(UNFIT)))
@given(st.data())
@settings(max_examples=examples(5))
def test_a_row_no_column_can_hold_is_dropped_and_counted_and_the_others_stay(kind, lie, data):
    good = [data.draw(rows_of(kind)) for _ in range(3)]
    values = {name: getattr(good[0], name) for name in fields_of(kind)}
    bad = kind(**{**values, **lie})
    with scratch() as place:
        prepare(place)
        opened = place / "open" / segment_name(1, 0.0).text
        segment = OpenSegment(opened, HEADER)
        mixed = Batch(1.0, 2.0, (good[0], bad, good[1], good[2]))
        lost = segment.flush({kind: [mixed, Batch(2.0, 3.0, (bad,))]}, STATES)
        segment.close()
        assert lost == 2
        for _ in range(2):
            found = only(place).batches(kind)
            # The second reading was not empty, so it must not be shown as such.
            assert shown(found) == shown([Batch(1.0, 2.0, tuple(good))])
            if opened.exists():
                seal(opened, place / "segments")


def test_the_rows_of_an_open_segment_can_be_read_as_the_module_describes_them(tmp_path: Path):
    opened = write_open(tmp_path, [simple(1.0), simple(5.0)])
    content, cpus = (opened / "core_times.rows").read_bytes(), []
    while content:
        (length,) = struct.unpack_from("<I", content)
        block, content = zlib.decompress(content[4 : 4 + length]), content[4 + length :]
        head, _, body = block.partition(b"\n")
        for name, kind, form, size in json.loads(head):
            if name == "cpu":
                assert (kind, form) == ("q", "raw")
                cpus += struct.unpack(f"<{size // 8}q", body[:size])
            body = body[size:]
    assert cpus == [0, 1] * 4


def test_a_sealed_table_is_ordinary_parquet_in_an_ordinary_archive(tmp_path: Path):
    whole = write_sealed(tmp_path, [simple(1.0)])
    busybox = need("busybox", package="busybox-static")
    subprocess.run(
        [busybox, "unzip", "-q", whole / "tables.zip", "-d", tmp_path / "out"], check=True
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "core_times.parquet",
        "mark.parquet",
        "reading.parquet",
    }
    assert pq.read_table(tmp_path / "out" / "core_times.parquet").num_rows == 4
