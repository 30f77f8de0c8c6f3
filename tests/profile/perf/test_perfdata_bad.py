"""perf.data that is cut off, damaged, foreign or malicious: one line, bounded, no hang."""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.errors import SourceError, SourceMalformed
from sexton.profile.perf import compressed as packing
from sexton.profile.perf.perfdata import read_raw
from sexton.record.stacks import mend
from tests.fuzz.perfdata_target import one, seeds
from tests.support.examples import examples
from tests.support.perf_bytes import (
    HEADER,
    USER_MARK,
    attr,
    comm,
    fork,
    mmap2,
    perf_data,
    piped,
    raw_record,
    sample,
    string,
)
from tests.support.perf_packed import FRAME, compressed, compressed2, packed_records, repeated

RECORDS = [
    comm(5, 5, b"sh"),
    mmap2(5, 0x1000, 0x1000, b"/bin/sh"),
    *(sample(time, 5, [USER_MARK, 0x1000 + time]) for time in range(1, 21)),
]
DATA = b"".join(RECORDS)


@pytest.fixture
def read(tmp_path):
    def reading(content: bytes):
        path = tmp_path / "perf.data"
        path.write_bytes(content)
        return read_raw(path)

    return reading


def refused(read, content: bytes) -> str:
    with pytest.raises(SourceMalformed) as raised:
        read(content)
    assert "\n" not in str(raised.value)
    assert raised.value.line == 0
    return raised.value.detail


def test_other_byte_orders_and_versions_are_refused_with_what_to_do(read):
    assert "run `perf script` there" in refused(read, b"2ELIFREP" + bytes(200))
    assert "before 2010" in refused(read, b"PERFFILE" + bytes(200))
    assert refused(read, b"comm 1/1 [000] 1.0:") == "not a perf.data file"
    assert refused(read, b"") == "not a perf.data file"
    assert refused(read, b"PERFILE2\x68") == "truncated in its header, after 9 bytes"


@pytest.mark.parametrize(
    ("at", "value", "detail"),
    [
        (8, 105, "header size is 105 bytes, expected 104"),
        (16, 0, "no readable event description in the header"),
        (16, 1 << 40, "no readable event description in the header"),
        (24, 1 << 60, "outside the file"),
        (32, 0, "no readable event description in the header"),
        (32, 1 << 50, "no readable event description in the header"),
        (32, 144 * 4000, "outside the file"),
        (40, 1 << 60, "data section starts outside the file"),
        (40, 0, "data section starts outside the file"),
    ],
)
def test_a_head_that_claims_what_is_not_there_is_refused(read, at, value, detail):
    content = bytearray(perf_data(RECORDS))
    struct.pack_into("<Q", content, at, value)
    assert detail in refused(read, bytes(content))


def test_ids_that_would_take_more_than_the_file_are_refused(read):
    content = bytearray(perf_data(RECORDS))
    struct.pack_into("<QQ", content, HEADER + 128, 0, len(content))
    assert len(read(bytes(content)).columns.time_ns) == 20
    struct.pack_into("<QQ", content, HEADER + 128, 0, 1 << 62)
    assert "event ids lie outside the file" in refused(read, bytes(content))


def test_a_file_cut_off_anywhere_is_read_as_far_as_it_goes(read):
    records = RECORDS[:5]
    data = b"".join(records)
    whole = perf_data(records, features={3: string(b"node-7")})
    start = whole.index(data)
    for end in range(start + len(data)):
        if end <= start:
            refused(read, whole[:end])
            continue
        try:
            raw = read(whole[:end])
        except SourceMalformed:
            assert end < start + len(RECORDS[0])
            continue
        expected = sum(end - start >= len(b"".join(records[: n + 3])) for n in range(3))
        assert len(raw.columns.time_ns) == expected
        assert any("truncated" in problem for problem in raw.facts.problems)
        assert raw.facts.host is None


def test_damage_in_the_middle_leaves_what_was_before(read):
    raw = read(perf_data([DATA, bytes(64), DATA]))
    assert len(raw.columns.time_ns) == 20
    place = len(perf_data([DATA]))
    assert raw.facts.problems == [f"damaged at byte {place:,}: the rest is skipped"]


def test_a_file_of_which_nothing_can_be_read_is_refused(read):
    assert "damaged at byte" in refused(read, perf_data([bytes(64)]))


def test_a_killed_perfs_file_is_read_to_its_end(read):
    raw = read(perf_data(RECORDS, data_size=0))
    assert len(raw.columns.time_ns) == 20
    assert "perf was killed while writing this file" in raw.facts.problems[0]


def test_a_file_whose_head_the_recorder_mended_is_read(tmp_path):
    whole, torn = tmp_path / "perf.data.1", tmp_path / "perf.data"
    content = perf_data(RECORDS)
    whole.write_bytes(content)
    torn.write_bytes(bytes(len(content) - len(DATA)) + DATA[:-5])
    assert mend(str(torn), str(whole))
    raw = read_raw(torn)
    assert len(raw.columns.time_ns) == 19
    assert raw.comms[raw.columns.comm[0]] == "sh"


def test_malformed_sections_are_skipped_and_reported(read):
    bad = {3: struct.pack("<I", 1 << 31), 7: b"\1", 11: b"", 12: bytes(8), 2: bytes(40), 29: b""}
    raw = read(perf_data(RECORDS, features={**bad, 4: string(b"6.18")}))
    assert len(raw.columns.time_ns) == 20
    assert raw.facts.release == "6.18"
    assert raw.facts.host is None
    assert len(raw.facts.problems) == 5  # an empty list of names is one


def test_samples_and_records_shorter_than_themselves_are_counted(read):
    short = [raw_record(9, bytes(16)), raw_record(10, bytes(16)), raw_record(7, b"")]
    raw = read(perf_data([*short, *RECORDS]))
    assert len(raw.columns.time_ns) == 20
    assert raw.facts.problems == [
        "1 malformed sample skipped",
        "2 malformed task or map records skipped",
    ]


def test_events_whose_samples_cannot_be_distinguished_are_refused(read):
    events = [(attr(), (1,)), (attr(sample_type=0x2001A7), (2,))]
    refused(read, perf_data(RECORDS, attrs=events))


def test_a_pipe_that_describes_no_event_is_refused(read):
    assert "no event description" in refused(read, struct.pack("<8sQ", b"PERFILE2", 16))
    assert "no event description" in refused(read, piped(RECORDS)[:16] + DATA)


@pytest.mark.parametrize("make", [compressed, compressed2])
@pytest.mark.parametrize("cuts", [(), (1, 7, 100, 101, 700), range(50, 900, 50)])
def test_compressed_records_are_one_stream(read, make, cuts):
    inside = b"".join(RECORDS[2:])
    raw = read(perf_data([*RECORDS[:2], *packed_records(inside, cuts, make)]))
    assert raw.columns.time_ns.tolist() == list(range(1, 21))
    assert raw.comms[raw.columns.comm[0]] == "sh"
    assert raw.facts.problems == []


def test_a_compressed_pipe_has_its_events_once(read):
    raw = read(piped([*RECORDS[:2], *packed_records(b"".join(RECORDS[2:]), (77,))]))
    assert len(raw.events) == 1
    assert len(raw.columns.time_ns) == 20


def test_a_stream_that_began_in_another_file_is_refused_with_the_reason(read):
    first, second = packed_records(DATA, (400,))
    assert len(read(perf_data([first])).columns.time_ns) > 0
    assert "in an earlier file of the set" in refused(read, perf_data([second]))


def test_a_compressed_stream_that_breaks_is_read_up_to_there(read):
    first, _ = packed_records(DATA, (400,))
    raw = read(perf_data([first, compressed(b"\xff" * 64)]))
    assert len(raw.columns.time_ns) > 0
    assert "damaged" in raw.facts.problems[0]
    assert "incomplete" in raw.facts.problems[1]


def test_a_few_bytes_cannot_fill_the_disk(read):
    # A record of 2,056 bytes, again and again: each block is 4 bytes here and 128 kB there.
    bomb = compressed(FRAME + repeated(8, 1 << 17) * 16_000)
    assert "unpacks to more than" in refused(read, perf_data([bomb]))


def test_without_the_library_it_says_what_to_install(read, monkeypatch):
    monkeypatch.setattr(packing, "_LIBRARY", "libzstd.so.nowhere")
    with pytest.raises(SourceError, match="unpacks `perf record -z`") as raised:
        read(perf_data(packed_records(DATA, ())))
    assert "install" in raised.value.grant


def test_a_fork_bomb_of_maps_stays_bounded(read):
    """Each child has all its parent had and one map more: squared, were it not for a bound."""
    many = [mmap2(1, 0x1000 * n, 0x1000, b"/x") for n in range(1, 4000)]
    for pid in range(2, 1000):
        many.append(fork((pid, pid), (pid - 1, pid - 1), time=pid))
        many.append(mmap2(pid, 0x1000 * pid, 0x1000, b"/y", time=pid))
        many.append(sample(5000, pid, [USER_MARK, 0x1000 * pid]))
    raw = read(perf_data(many))
    assert "too many mappings: some processes have none" in raw.facts.problems
    assert sum(len(space.maps) for space in raw.spaces) < 1_100_000


@pytest.mark.whole
def test_a_trace_cut_into_crumbs_is_given_up(read):
    crumb = raw_record(71, struct.pack("<QQQIIII", 1, 0, 0, 0, 0, 0, 0)) + b"x"
    raw = read(perf_data([DATA, crumb * 30_000, DATA]))
    assert len(raw.columns.time_ns) == 20
    assert "damaged at byte" in raw.facts.problems[0]


def test_a_large_capture_is_read_in_little_memory(tmp_path):
    """200 MB of samples with 100,000 tasks and maps among them, in less than a quarter of that."""
    path = tmp_path / "perf.data"
    side = b"".join(
        comm(n, n, b"task-%d" % (n % 50)) + mmap2(n, 0x1000, 0x1000, b"/bin/x")
        for n in range(50_000)
    )
    block = b"".join(
        sample(1000 + n, n % 100, [USER_MARK, *range(0x1000, 0x1040)]) for n in range(500)
    )
    times = (200 << 20) // len(block)
    head = perf_data([side], data_size=len(side) + times * len(block))
    with open(path, "wb") as output:
        output.write(head)
        for _ in range(times):
            output.write(block)
    program = (
        "import resource, sys\n"
        "from sexton.profile.perf.perfdata import read_raw\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "raw = read_raw(sys.argv[1])\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(len(raw.columns.time_ns), after - before)"
    )
    argv = [sys.executable, "-c", program, str(path)]
    answer = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    path.unlink()
    assert int(answer[0]) == 500 * times
    assert int(answer[1]) < 120 << 10  # kB; columns of as many samples take 15 MB of it


@given(st.data())
@settings(max_examples=examples(300))
def test_any_bytes_changed_anywhere_give_one_line_or_samples(data):
    content = bytearray(data.draw(st.sampled_from(seeds())))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    one(bytes(content[:cut]) if data.draw(st.booleans()) else bytes(content))


@given(st.binary(max_size=2000), st.booleans())
@settings(max_examples=examples(300))
def test_any_bytes_for_records_give_one_line_or_samples(junk, pipe):
    one(piped([junk]) if pipe else perf_data([junk]))


@given(st.lists(st.sampled_from(RECORDS), max_size=30), st.lists(st.integers(0, 3000), max_size=9))
def test_however_a_stream_is_cut_it_is_the_same(records, cuts):
    inside = b"".join(records)
    edges = sorted({cut for cut in cuts if 0 < cut < len(inside)})
    packed = packed_records(inside, edges)
    assert all(a < b for a, b in pairwise(edges))
    one(perf_data(packed))


def test_no_temporary_file_stays(read, tmp_path, monkeypatch):
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spool))
    read(perf_data(packed_records(DATA, (100,))))
    assert os.listdir(spool) == []
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > len(os.listdir("/proc/self/fd"))
