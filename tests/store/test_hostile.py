"""Segments that somebody made on purpose: every checksum fits, and the content is meant to hurt.

A reader reports and skips them; it neither crashes nor swells, and `verify` calls them damaged.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sexton import sandbox
from sexton.model.window import Batch
from sexton.store.encoding import MONO, POSITION, WALL
from sexton.store.journal import JOURNAL
from sexton.store.recording import Recording
from sexton.store.schema import encode, schema_of, tables
from sexton.store.sealer import take_over
from sexton.store.verify import DAMAGED, verify
from tests.explorer.server.asking import serving
from tests.support.cli import ENVIRONMENT, SEXTON, reader_of, sexton
from tests.support.recordings import (
    HEADER,
    WALL_S,
    cores,
    manifest_of,
    marks,
    replace_table,
    resign,
    simple,
    table_of,
    write_open,
    write_sealed,
)

#: Of rows that take 512 MB; of a small recording 250 MB may be read at once.
MILLIONS = 16
#: In /proc/PID/status.
KEYS = ("Seccomp", "VmHWM")
#: Runs a command and says how many kB it took. Started by us alone it would have had our memory.
MEASURED = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(status)
"""
MARK, CORE = tables()["mark"], tables()["core_times"]


def vouch(opened: Path, name: str, content: bytes, suffix: str) -> None:
    """Put these bytes in place of a table of an open segment, and sign the journal anew."""
    for path in opened.glob(f"{name}.*"):
        path.unlink()
    (opened / f"{name}{suffix}").write_bytes(content)
    lines = [json.loads(line[9:]) for line in (opened / JOURNAL).read_bytes().splitlines()]
    for line in lines[1:]:
        line.get("ends", {}).pop(name, None)
    lines[-1].setdefault("ends", {})[name] = [len(content), zlib.crc32(content)]
    write_journal(opened, lines)


def write_journal(opened: Path, lines: list[Any]) -> None:
    texts = [json.dumps(line).encode() for line in lines]
    signed = (b"%08x %s\n" % (zlib.crc32(text), text) for text in texts)
    (opened / JOURNAL).write_bytes(b"".join(signed))


def stream_of(found: pa.RecordBatch) -> bytes:
    """An Arrow stream, as older versions wrote them."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found.schema) as writer:
        writer.write_batch(found)
    return sink.getvalue().to_pybytes()


def bad_offsets(opened: Path) -> None:
    """Offsets of strings that lead a gigabyte away: reading the text is a segmentation fault."""
    batch = encode(MARK, [marks(3, 2.0)])[0]
    offsets = batch.column("text").buffers()[1].to_pybytes()[:16]
    content = stream_of(batch)
    assert content.count(offsets) == 1
    far = struct.pack("<4i", 0, 1 << 30, (1 << 30) + 9, (1 << 30) + 18)
    vouch(opened, "mark", content.replace(offsets, far), ".arrows")


def rows_without_bytes(opened: Path) -> None:
    """A billion rows of nothing."""
    names = [*schema_of(MARK).names]
    columns = [pa.nulls(1 << 30) for _ in names]
    vouch(opened, "mark", stream_of(pa.record_batch(columns, names)), ".arrows")


def other_types(opened: Path) -> None:
    """Text where numbers are expected."""
    batch = encode(MARK, [marks(3, 2.0)])[0]
    columns = [pa.array(["x"] * 3), *batch.columns[1:]]
    vouch(opened, "mark", stream_of(pa.record_batch(columns, batch.schema.names)), ".arrows")


def no_times(opened: Path) -> None:
    batch = encode(MARK, [marks(3, 2.0)])[0]
    vouch(opened, "mark", stream_of(batch.select(["text"])), ".arrows")


def packed_zeros(opened: Path) -> None:
    """Rows that unpack to a hundred times what they take."""
    body = b"[]\n" + bytes(30 << 20)
    block = zlib.compress(body, 1)
    vouch(opened, "mark", (struct.pack("<I", len(block)) + block) * 3, ".rows")


def backwards(opened: Path) -> None:
    """A journal that vouches for the same bytes again and again."""
    content = (opened / "mark.rows").read_bytes()
    lines = [json.loads(line[9:]) for line in (opened / JOURNAL).read_bytes().splitlines()]
    ends = [[len(content), zlib.crc32(content)], [0, 0]] * 50
    write_journal(opened, [*lines, *({"ends": {"mark": end}} for end in ends)])


def missing_value(opened: Path) -> None:
    """No text in a mark: what every reader of it needs."""
    batch = encode(MARK, [marks(3, 2.0)])[0]
    columns = [*batch.columns[:-1], pa.array(["a", None, "c"])]
    vouch(opened, "mark", stream_of(pa.record_batch(columns, batch.schema.names)), ".arrows")


def no_moment(opened: Path) -> None:
    """Rows that were read at no time."""
    batch = encode(MARK, [marks(3, 2.0)])[0]
    columns = [pa.array([2.0, float("nan"), 2.0]), *batch.columns[1:]]
    vouch(opened, "mark", stream_of(pa.record_batch(columns, batch.schema.names)), ".arrows")


def twice(opened: Path) -> None:
    """Two columns of one name."""
    batch = encode(MARK, [marks(3, 2.0)])[0]
    names = [*batch.schema.names, "text"]
    columns = [*batch.columns, batch.columns[-1]]
    vouch(opened, "mark", stream_of(pa.record_batch(columns, names)), ".arrows")


def many_columns(opened: Path) -> None:
    """Thousands of columns beside those of a mark."""
    head = [*((name, "d", "raw", 8) for name in (MONO, WALL)), (POSITION, "i", "raw", 4)]
    head += [("text", "s", "json", 5), *((f"c{number}", "q", "json", 3) for number in range(3000))]
    block_of(opened, head, b'["a"]' + b"[1]" * 3000)


def block_of(opened: Path, head: list[Any], rest: bytes) -> None:
    """A block of rows with one row's times and `rest`."""
    body = struct.pack("<ddi", 2.0, WALL_S + 2.0, 0) + rest
    block = zlib.compress(json.dumps(head).encode() + b"\n" + body)
    vouch(opened, "mark", struct.pack("<I", len(block)) + block, ".rows")


def no_type_of_parquets(opened: Path) -> None:
    """A further column of a type that cannot be sealed: `verify` found nothing, and a recorder put
    the whole segment aside."""
    batch = encode(MARK, [marks(3, 2.0)])[0]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), pa.array(["a"]))
    columns = [*batch.columns, runs]
    names = [*batch.schema.names, "more"]
    vouch(opened, "mark", stream_of(pa.record_batch(columns, names)), ".arrows")


def too_deep(opened: Path) -> None:
    """A further column of lists in lists: it was sealed, and Parquet could not read it again."""
    value = b"[" * 151 + b"1" + b"]" * 151
    head = [*((name, "d", "raw", 8) for name in (MONO, WALL)), (POSITION, "i", "raw", 4)]
    head += [("text", "s", "json", 5), ("more", "q" + "l" * 150, "json", len(value))]
    block_of(opened, head, b'["a"]' + value)


OPEN: list[Callable[[Path], None]] = [
    bad_offsets, rows_without_bytes, other_types, no_times, packed_zeros, backwards,
    missing_value, no_moment, twice, many_columns,
    no_type_of_parquets, too_deep,
]  # fmt: skip


@pytest.mark.parametrize("make", OPEN)
def test_an_open_segment_made_to_hurt_is_named_skipped_and_damaged(
    tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sandbox, "_UNCONFINED_READ", 64 << 20)
    make(write_open(tmp_path, [simple(1.0)]))
    recording = Recording(tmp_path)
    (segment,) = recording.segments
    assert len(segment.batches(CORE)) == 2, "the other tables are read"
    assert [batch for batch in segment.batches(MARK) if batch.rows] == []
    assert any("mark" in problem for problem in recording.problems)
    assert any(trouble.kind == DAMAGED for trouble in verify(tmp_path).troubles)
    assert any("mark" in note for note in take_over(tmp_path)), "a recorder seals the rest"
    assert not list((tmp_path / "open").iterdir()), "and does not meet it again"
    assert len(Recording(tmp_path).segments[0].batches(CORE)) == 2


#: Names that are none of a table; some cannot even be looked up.
NAMES = ["a\0b", "\ud800", "../mark", "a" * 300 + ".", ""]


def with_line(opened: Path, line: Any) -> None:
    """One more line in a journal, with a checksum that fits."""
    lines = [json.loads(line[9:]) for line in (opened / JOURNAL).read_bytes().splitlines()]
    write_journal(opened, [*lines, line])


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_table_has_costs_one_flush_and_not_the_recording(tmp_path: Path, name: str):
    """With a NUL or half a surrogate pair every command failed on the whole recording."""
    write_sealed(tmp_path, [simple(1.0)])
    with_line(write_open(tmp_path, [simple(31.0)], sequence=2), {"ends": {name: [5, 1]}})
    assert [len(segment.batches(MARK)) for segment in Recording(tmp_path).segments] == [2, 2]
    (trouble,) = verify(tmp_path).troubles
    assert (trouble.kind, trouble.place.rpartition("/")[2]) == (DAMAGED, JOURNAL)
    assert len(take_over(tmp_path)) == 2, "what was cut, and one segment sealed"
    assert not list((tmp_path / "open").iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_table_has_in_a_manifest_is_damage(tmp_path: Path, name: str):
    segment = write_sealed(tmp_path, [simple(1.0)])
    manifest = manifest_of(segment)
    manifest["tables"][name] = {**manifest["tables"]["mark"]}
    del manifest["tables"][name]["offset"]
    resign(segment, manifest)
    assert Recording(tmp_path).segments == []
    assert [trouble.kind for trouble in verify(tmp_path).troubles] == [DAMAGED]


def test_a_recorder_starts_over_names_that_no_table_has(tmp_path: Path):
    """It ended with 2, said that its last minutes were not written, and did so at each start."""
    for number, name in enumerate(NAMES, 1):
        with_line(write_open(tmp_path, [simple(31.0)], sequence=number), {"ends": {name: [5, 1]}})
    quick = ("--no-probe", "--no-ring", "--no-trace", "--seconds", "1")
    ended = sexton("record", tmp_path, *quick)
    assert (ended.returncode, b"not written" in ended.stderr) == (0, False)
    assert not list((tmp_path / "open").iterdir())


HEADERS: list[dict[str, Any]] = [
    {"host": {}},
    {"boot_id": []},
    {"sexton": None},
    {"sequence": "x"},
    {"recorder_start": float("nan")},
    {"providers": {"mark": 5}},
    {"periods": {"marks": "x"}},
]


@pytest.mark.parametrize("header", HEADERS)
def test_a_header_that_no_recorder_writes_is_damage(tmp_path: Path, header: dict[str, Any]):
    opened = write_open(tmp_path, [simple(31.0)], sequence=2)
    lines = [json.loads(line[9:]) for line in (opened / JOURNAL).read_bytes().splitlines()]
    write_journal(opened, [{**lines[0], **header}, *lines[1:]])
    segment = write_sealed(tmp_path, [simple(1.0)])
    resign(segment, {**manifest_of(segment), **header})
    assert Recording(tmp_path).segments == []
    assert [trouble.kind for trouble in verify(tmp_path).troubles] == [DAMAGED, DAMAGED]


@pytest.mark.parametrize("config", [5, {}, {"path": 1}])
def test_a_configuration_that_no_recorder_stores_is_damage_and_loses_no_reading(
    tmp_path: Path, config: Any
):
    write_sealed(tmp_path, [simple(1.0)], 1, {**HEADER, "config": config})
    write_open(tmp_path, [simple(31.0)], 2, {**HEADER, "config": config})
    assert [len(segment.batches(MARK)) for segment in Recording(tmp_path).segments] == [2, 2]
    assert [trouble.kind for trouble in verify(tmp_path).troubles] == [DAMAGED, DAMAGED]


@pytest.mark.parametrize("place", [0, 2])
def test_a_state_of_no_source_is_damage(tmp_path: Path, place: int):
    """`recording info` sorted the names of the sources and ended with an internal error."""
    state: list[Any] = ["procfs.stat", "/proc/stat", "ok", "", "", False]
    state[place] = None
    segment = write_sealed(tmp_path, [simple(1.0)])
    resign(
        segment, {**manifest_of(segment), "states": [state, ["a", *state[1:2], "ok", "", "", 0]]}
    )
    with_line(write_open(tmp_path, [simple(31.0)], sequence=2), {"states": [state]})
    ended = sexton("recording", "info", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert {trouble.kind for trouble in verify(tmp_path).troubles} == {DAMAGED}


def parquet(found: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(found, sink, store_schema=False)
    return sink.getvalue().to_pybytes()


def constant_rows(millions: int) -> bytes:
    """Millions of rows that are all the same: some kilobytes on disk, gigabytes in memory."""
    number = 1 << 20
    columns = {
        MONO: np.full(number, 2.0),
        WALL: np.full(number, WALL_S + 2.0),
        POSITION: np.zeros(number, np.int32),
        "text": pa.DictionaryArray.from_arrays(np.zeros(number, np.int8), ["x"]),
    }
    group = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, group.schema, compression="zstd", store_schema=False) as writer:
        for _ in range(millions):
            writer.write_table(group)
    return sink.getvalue().to_pybytes()


@pytest.fixture(scope="module")
def bomb() -> bytes:
    return constant_rows(MILLIONS)


def test_rows_are_counted_before_they_are_read(
    tmp_path: Path, bomb: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sandbox, "_UNCONFINED_READ", 250 << 20)
    segment = write_sealed(tmp_path, [simple(1.0)])
    replace_table(segment, "mark", bomb, MILLIONS << 20)
    assert len(bomb) < 1 << 20
    recording = Recording(tmp_path)
    assert not any(batch.rows for batch in recording.segments[0].batches(MARK))
    assert ["in memory, too large" in problem for problem in recording.problems] == [True]


def test_a_file_with_other_rows_than_were_sealed_is_not_read(tmp_path: Path):
    segment = write_sealed(tmp_path, [simple(1.0)])
    replace_table(segment, "mark", table_of(segment, "mark"), 4)
    recording = Recording(tmp_path)
    assert not any(batch.rows for batch in recording.segments[0].batches(MARK))
    assert ["3 rows, sealed with 4" in problem for problem in recording.problems] == [True]


def test_a_table_of_more_columns_than_any_has_is_damage_whoever_knows_it(tmp_path: Path):
    """Of 30,000 columns, verifying compared each with each: minutes for a table of 9 MB."""
    segment = write_sealed(tmp_path, [simple(1.0)])
    manifest = manifest_of(segment)
    manifest["tables"]["of_a_later_version"] = dict(manifest["tables"]["mark"])
    resign(segment, manifest)
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({f"c{number}": [1] for number in range(600)}), sink)
    replace_table(segment, "of_a_later_version", sink.getvalue().to_pybytes(), 1)
    (trouble,) = verify(tmp_path).troubles
    assert trouble.kind == DAMAGED
    assert trouble.detail == "600 columns, more than any table has"


ODD = [
    pa.array(["x"] * 3).cast(pa.string_view()),
    pa.array([1, 2, 3], pa.timestamp("ns")),
    pa.array([{"a": 1}] * 3),
    pa.array([[[[1]]]] * 3),
]


@pytest.mark.parametrize("column", ODD, ids=[str(column.type) for column in ODD])
def test_a_further_column_of_a_type_that_is_not_recorded_is_damage(
    tmp_path: Path, column: pa.Array
):
    """Arrow cannot take rows of every type, nor compare them, and Python has not every time: verify
    found nothing or failed itself, and exporting failed on the whole recording."""
    segment = write_sealed(tmp_path, [simple(1.0)])
    content = pq.read_table(pa.BufferReader(table_of(segment, "mark")))
    sink = pa.BufferOutputStream()
    pq.write_table(content.append_column("more", column), sink)
    replace_table(segment, "mark", sink.getvalue().to_pybytes())
    (trouble,) = verify(tmp_path).troubles
    assert trouble.kind == DAMAGED
    assert trouble.detail.endswith("which is not recorded")


def bad_codes() -> bytes:
    """A column whose codes lead out of its dictionary: 1 bit each, made 8 bits that say 200."""
    number = 1000
    text = ["a"] * number + ["b"] * number
    rows = 2 * number
    columns = {MONO: np.full(rows, 2.0), WALL: np.full(rows, WALL_S + 2.0)}
    columns[POSITION] = np.arange(rows, dtype=np.int32)
    found = pa.table({**columns, "text": text})
    sink = pa.BufferOutputStream()
    options = {"compression": "none", "use_dictionary": ["text"], "store_schema": False}
    pq.write_table(found, sink, **options)
    content = sink.getvalue().to_pybytes()
    runs = b"\x01\xd0\x0f\x00\xd0\x0f\x01"
    assert content.count(runs) == 1
    return content.replace(runs, b"\x08\xd0\x0f\xc8\xd0\x0f\xc8")


def test_codes_that_lead_out_of_their_dictionary_are_never_looked_up(tmp_path: Path):
    segment = write_sealed(tmp_path, [simple(1.0)])
    replace_table(segment, "mark", bad_codes(), 2000)
    recording = Recording(tmp_path)
    for coded in ((), ("text",)):
        assert recording.segments[0].table(MARK, None, coded) is None
    assert any("mark.parquet" in problem for problem in recording.problems)
    assert [trouble.kind for trouble in verify(tmp_path).troubles] == [DAMAGED]


EVENT, ALARM = tables()["kernel_event"], tables()["alarm"]


@pytest.mark.parametrize(
    "fields", ["[]", "null", "{", '{"queue": []}', '{"queue": null}', '{"queue": 1.5}', None]
)
def test_fields_of_an_event_that_no_detector_could_use_are_damage(
    tmp_path: Path, fields: str | None
):
    """Detectors look queues and cores up by them. The whole diagnosis failed on such a text, and
    `verify` called the recording whole."""
    line = EVENT("reset", "nic_reset", "a", 5, WALL_S, {"nic": "eth0"})
    flush = {**simple(1.0), EVENT: [Batch(2.0, WALL_S + 2.0, (line,))]}
    segment = write_sealed(tmp_path, [flush])
    found = pq.read_table(pa.BufferReader(table_of(segment, "kernel_event")))
    place = found.column_names.index("fields")
    found = found.set_column(place, "fields", pa.array([fields], pa.string()))
    replace_table(segment, "kernel_event", parquet(found))
    assert [trouble.kind for trouble in verify(tmp_path).troubles] == [DAMAGED]
    ended = sexton("diagnose", "--from", tmp_path)
    assert (ended.returncode, ended.stderr) == (3, b"")
    assert b"1 damaged or foreign piece skipped" in ended.stdout


@pytest.mark.parametrize(
    "column", [pa.array([0.0, float("nan")]), pa.array([0, None]), pa.array([0.5, 1.5])]
)
def test_numbers_that_are_no_whole_numbers_are_damage(tmp_path: Path, column: pa.Array):
    segment = write_sealed(tmp_path, [{CORE: [cores(2.0)]}])
    found = pq.read_table(pa.BufferReader(table_of(segment, "core_times")))
    place = found.column_names.index("cpu")
    replace_table(segment, "core_times", parquet(found.set_column(place, "cpu", column)))
    recording = Recording(tmp_path)
    assert recording.segments[0].batches(CORE) == []
    assert any("column cpu" in problem for problem in recording.problems)
    assert [trouble.kind for trouble in verify(tmp_path).troubles] == [DAMAGED]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e300])
def test_a_time_that_is_none_is_damage_in_any_column(tmp_path: Path, value: float):
    """A diagnosis failed on an alarm that ended at no time, and `verify` called it whole."""
    alarm = ALARM("nic_reset", "eth0", "a", 1.0, 2.0)
    segment = write_sealed(tmp_path, [{**simple(1.0), ALARM: [Batch(2.0, WALL_S + 2.0, (alarm,))]}])
    found = pq.read_table(pa.BufferReader(table_of(segment, "alarm")))
    place = found.column_names.index("end_s")
    replace_table(segment, "alarm", parquet(found.set_column(place, "end_s", pa.array([value]))))
    assert [trouble.kind for trouble in verify(tmp_path).troubles] == [DAMAGED]
    ended = sexton("diagnose", "--from", tmp_path)
    assert (ended.returncode, ended.stderr) == (3, b"")


def test_what_readers_would_refuse_is_not_written():
    rows = tuple(ALARM("mark", "x", "y", 1.0, end_s) for end_s in (2.0, float("nan"), 1e13))
    batch, refused = encode(ALARM, [Batch(1.0, WALL_S, rows)])
    assert (batch.column("end_s").to_pylist(), refused) == ([2.0], 2)


def test_states_of_a_compacted_hour_that_names_no_source_are_shown(tmp_path: Path):
    """`recording info` looked every source up in them."""
    segment = write_sealed(tmp_path, [simple(1.0)])
    resign(segment, {**manifest_of(segment), "compacted": {}})
    ended = sexton("recording", "info", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_statistics_that_differ_from_the_columns_are_damage(tmp_path: Path):
    """Readers choose row groups by them, so rows would be passed over."""
    segment = write_sealed(tmp_path, [simple(1.0)])
    content = table_of(segment, "core_times")
    edge = struct.pack("<d", 2.0)
    footer = content.rindex(edge)  # the statistics are in the footer
    replace_table(
        segment, "core_times", content[:footer] + struct.pack("<d", 7.0) + content[footer + 8 :]
    )
    assert [trouble.detail for trouble in verify(tmp_path).troubles] == [
        "its statistics differ from its columns"
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_readings_without_a_time_are_not_used(tmp_path: Path, value: float):
    segment = write_sealed(tmp_path, [simple(1.0)])
    listed = pq.read_table(pa.BufferReader(table_of(segment, "reading")))
    place = listed.column_names.index(MONO)
    times = listed.column(MONO).to_pylist()
    listed = listed.set_column(place, listed.schema.field(place), pa.array([value, *times[1:]]))
    replace_table(segment, "reading", parquet(listed))
    recording = Recording(tmp_path)
    assert recording.segments[0].readings() is None
    assert any("no valid time" in problem for problem in recording.problems)
    assert [trouble.detail for trouble in verify(tmp_path).troubles] == [
        "a reading has no valid time"
    ]


def test_no_command_crashes_or_swells_on_a_made_recording(tmp_path: Path, bomb: bytes):
    """The real commands, with what they take measured."""
    bad_offsets(write_open(tmp_path, [simple(31.0)], sequence=2))
    replace_table(write_sealed(tmp_path, [simple(1.0)]), "mark", bomb, MILLIONS << 20)
    for command in (["recording", "verify", tmp_path], ["diagnose", "--from", tmp_path]):
        ended = subprocess.run(
            [sys.executable, "-c", MEASURED, *SEXTON, *command],
            env=ENVIRONMENT, capture_output=True, timeout=180, check=False,
        )  # fmt: skip
        *errors, taken = ended.stderr.splitlines()
        assert (ended.returncode in (1, 3), errors) == (True, [])
        assert b"damaged" in ended.stdout
        assert int(taken) < 400 << 10


def test_the_explorer_serves_the_rest_of_a_made_recording(tmp_path: Path, bomb: bytes):
    bad_offsets(write_open(tmp_path, [simple(31.0)], sequence=2))
    replace_table(write_sealed(tmp_path, [simple(1.0)]), "mark", bomb, MILLIONS << 20)
    with serving(str(tmp_path)) as running:
        about = running.get("/api/recording").json
        told = running.get(f"/api/explain?from={about['start']}&to={about['end']}")
        reader = reader_of(running.process)
        status = Path(f"/proc/{reader}/status").read_text()
        filtered, most = (int(re.findall(f"{key}:\\s+(\\d+)", status)[0]) for key in KEYS)
    assert told.status == 200
    assert any("mark" in problem for problem in about["problems"])
    assert filtered == 2, "its system calls are filtered"
    assert most < 400 << 10


def test_memory_that_a_check_did_not_foresee_is_bounded(tmp_path: Path):
    """A dictionary of one long word and many rows: little to see beforehand, gigabytes as text."""
    number = 1 << 20
    columns = {MONO: np.full(number, 2.0), WALL: np.full(number, WALL_S + 2.0)}
    columns[POSITION] = np.zeros(number, np.int32)
    text = pa.DictionaryArray.from_arrays(np.zeros(number, np.int8), ["x" * 2000])
    found = pa.table({**columns, "text": text})
    segment = write_sealed(tmp_path, [simple(1.0)])
    replace_table(segment, "mark", parquet(found), number)
    ended = sexton("recording", "verify", tmp_path)
    assert ended.returncode == 1, ended.stderr
    assert b"mark.parquet" in ended.stdout
    assert b"Traceback" not in ended.stderr


def repeated(segment: Path, name: str, rows: list[int]) -> None:
    """These rows of a table instead of all, with checksums that fit."""
    found = pq.read_table(pa.BufferReader(table_of(segment, name)))
    replace_table(segment, name, parquet(found.take(rows)), len(rows))


@pytest.mark.parametrize("rows", [[0] * 300 + [1, 2, 3], [0, 1] * 300])
def test_rows_that_repeat_as_no_recorder_repeats_them_are_damage(tmp_path: Path, rows: list[int]):
    """Some hundred kilobytes of them cost a diagnosis a minute, and `verify` called them whole."""
    segment = write_sealed(tmp_path, [simple(1.0)])
    repeated(segment, "core_times", rows)
    assert [trouble.detail for trouble in verify(tmp_path).troubles] == [
        "has more rows of one thing at one time than a reading has"
    ]


@pytest.mark.parametrize("name", ["core_times", "mark"])
def test_rows_that_the_list_of_readings_has_not_are_damage(tmp_path: Path, name: str):
    segment = write_sealed(tmp_path, [simple(1.0)])
    repeated(segment, name, [0, 0, 0, 0])
    assert [trouble.detail for trouble in verify(tmp_path).troubles] == [
        "has rows that its list of readings has not"
    ]


def test_rows_that_repeat_in_an_open_segment_are_damage_too(tmp_path: Path):
    opened = write_open(tmp_path, [simple(1.0)])
    batch = encode(MARK, [marks(3, 1.0)])[0]
    content = stream_of(pa.Table.from_batches([batch] * 2).combine_chunks().to_batches()[0])
    vouch(opened, "mark", content, ".arrows")
    assert [trouble.kind for trouble in verify(tmp_path).troubles] == [DAMAGED]


def test_a_text_that_is_long_in_many_rows_is_damage_and_is_not_exported(tmp_path: Path):
    """37 kB of them were whole, and an export died of memory."""
    number = 1 << 18
    columns = {MONO: np.full(number, 2.0), WALL: np.full(number, WALL_S + 2.0)}
    columns[POSITION] = np.arange(number, dtype=np.int32)
    text = pa.DictionaryArray.from_arrays(np.zeros(number, np.int8), ["x" * 1500])
    segment = write_sealed(tmp_path / "rec", [simple(1.0)])
    replace_table(segment, "mark", parquet(pa.table({**columns, "text": text})), number)
    ended = sexton("recording", "verify", tmp_path / "rec")
    assert (ended.returncode, ended.stderr) == (1, b"")
    assert b"375 MB of text, too large" in ended.stdout
    ended = sexton("recording", "export", tmp_path / "rec", "--out", tmp_path / "out")
    assert ended.returncode == 1
    assert ended.stderr.startswith(b"sexton: skipped: ")


def test_a_text_that_may_be_exported_is_decoded_a_few_rows_at_a_time(tmp_path: Path):
    number = 1 << 18
    columns = {MONO: np.full(number, 2.0), WALL: np.full(number, WALL_S + 2.0)}
    columns[POSITION] = np.arange(number, dtype=np.int32)
    text = pa.DictionaryArray.from_arrays(np.zeros(number, np.int8), ["x" * 900])
    segment = write_sealed(tmp_path / "rec", [simple(1.0)])
    replace_table(segment, "mark", parquet(pa.table({**columns, "text": text})), number)
    for form in ("jsonl", "parquet"):
        out = tmp_path / form
        words = ("--out", out, "--format", form, "--table", "mark")
        ended = sexton("recording", "export", tmp_path / "rec", *words)
        assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_journal_that_claims_any_length_does_not_count_as_read(tmp_path: Path):
    opened = write_open(tmp_path, [simple(1.0)])
    with_line(opened, {"ends": {"mark": [1 << 61, 1]}})
    assert verify(tmp_path).bytes < 1 << 20
    with_line(opened, {"ends": {"mark": [1 << 80, 1]}})
    assert verify(tmp_path).bytes < 1 << 20
