"""The ways a perf.data comes: piped, as a directory, from standard input, with odd records."""

from __future__ import annotations

import os
import struct
import subprocess
import sys

import pytest

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.model.profile import Event
from sexton.profile.perf.perfdata import is_perf_data, read_raw
from tests.profile.perf.perfdata_cases import build_id, comms, frames, placed, user
from tests.support.perf_bytes import (
    SAMPLE_TYPE,
    attr,
    comm,
    mmap2,
    perf_data,
    piped,
    raw_record,
    record,
    sample,
    string,
)

#: FINISHED_ROUND: a record of perf's own, without a tail.
ROUND = raw_record(68, b"")


@pytest.fixture
def read(tmp_path):
    def reading(content: bytes | list[bytes], **more):
        path = tmp_path / "perf.data"
        path.write_bytes(content if isinstance(content, bytes) else perf_data(content, **more))
        return read_raw(path)

    return reading


def test_a_pipe_has_everything_as_records(read):
    update = raw_record(78, struct.pack("<QQ", 2, 11) + b"mine\0\0\0\0")
    raw = read(
        piped(
            [
                update,
                raw_record(80, struct.pack("<Q", 3) + string(b"node-7")),
                raw_record(67, build_id(b"/bin/sh", b"\x04" * 20, 2)[8:], 2),
                comm(5, 5, b"sh"),
                mmap2(5, 0x1000, 0x1000, b"/bin/sh"),
                sample(1, 5, user(0x1004), id=11),
            ],
            attrs=[(attr(), (11,))],
        )
    )
    assert raw.events == (Event("mine", hertz=97),)
    assert comms(raw) == ["sh"]
    assert raw.facts.host == "node-7"
    assert raw.files[0].build_id == "04" * 20
    assert raw.facts.problems == []


def test_bytes_that_no_record_counts_are_stepped_over(read):
    junk = b"\x07" * 1001
    aux = raw_record(71, struct.pack("<QQQIIII", len(junk), 0, 0, 0, 0, 0, 0))
    raw = read([sample(1, 5, user(1)), aux + junk, ROUND, sample(2, 5, user(1))])
    assert raw.columns.time_ns.tolist() == [1, 2]
    assert raw.facts.problems == []


def test_records_of_kinds_nobody_knows_yet_are_passed_over(read):
    raw = read([raw_record(999, bytes(40)), record(40, bytes(16)), sample(1, 5, user(1))])
    assert len(raw.columns.time_ns) == 1
    assert raw.facts.problems == []


def test_a_directory_holds_one_stream_for_each_core(tmp_path):
    (tmp_path / "data").write_bytes(perf_data([comm(5, 5, b"sh"), mmap2(5, 0x1000, 0x1000, b"/x")]))
    (tmp_path / "data.0").write_bytes(sample(20, 5, user(0x1004)))
    (tmp_path / "data.10").write_bytes(sample(10, 5, user(0x1004)) + comm(5, 5, b"ls", time=15))
    raw = read_raw(tmp_path)
    assert comms(raw) == ["sh", "ls"]
    assert placed(raw, 0) == ["/x"]


def test_a_capture_without_chains_has_the_instruction_itself(read):
    kind = SAMPLE_TYPE & ~(1 << 5 | 1 << 21)
    body = struct.pack("<QiiQQiIQ", 0xABC, 5, 5, 1, 0, 0, 0, 1)
    raw = read([raw_record(9, body, 2)], attrs=[(attr(sample_type=kind), ())])
    assert frames(raw, 0) == [(-1, 0xABC)]
    assert raw.columns.cgroup.tolist() == [-1]


@pytest.mark.parametrize("engine", ["c", "numpy"])
def test_standard_input_is_read_from_a_pipe_and_from_a_file(tmp_path, engine):
    content = piped([comm(5, 5, b"sh"), sample(1, 5, user(1))])
    program = (
        "from pathlib import Path\n"
        "from sexton.profile.captures import open_profile\n"
        "from sexton.profile.symbols import SymbolOptions\n"
        "opened = open_profile([Path('-')], SymbolOptions(cache=''))\n"
        "(profile,) = opened.profiles()\n"
        "print(len(profile), profile.threads[profile.thread[0]].comm, opened.facts.path)"
    )
    environment = {**os.environ, "SEXTON_ENGINE": engine}
    argv = [sys.executable, "-c", program]
    answer = subprocess.run(argv, input=content, capture_output=True, env=environment, check=True)
    assert answer.stdout == b"1 sh standard input\n"
    (tmp_path / "x").write_bytes(content)
    with open(tmp_path / "x", "rb") as given:
        answer = subprocess.run(argv, stdin=given, capture_output=True, env=environment, check=True)
    assert answer.stdout == b"1 sh standard input\n"


def test_nothing_is_left_open(tmp_path):
    path = tmp_path / "perf.data"
    before = len(os.listdir("/proc/self/fd"))
    path.write_bytes(perf_data([sample(1, 5, user(1))]))
    read_raw(path)
    path.write_bytes(b"PERFILE2" + bytes(200))
    with pytest.raises(SourceMalformed):
        read_raw(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_missing_and_special_files_are_refused(tmp_path):
    with pytest.raises(SourceAbsent):
        read_raw(tmp_path / "nothing")
    with pytest.raises(SourceMalformed, match="directory without perf's file `data`"):
        read_raw(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceMalformed, match="not a regular file"):
        read_raw(tmp_path / "pipe")


def test_perf_data_is_recognised_by_its_first_bytes():
    assert is_perf_data(perf_data([])[:8])
    assert is_perf_data(b"2ELIFREP")
    assert not is_perf_data(b"sexton 1/1 [000]")
