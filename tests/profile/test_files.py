"""A file's format is detected from its content; rotated files of perf are one set."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent
from sexton.profile.files import (
    HEAD,
    READERS,
    first_sample_ns,
    is_perf_directory,
    members,
    rotated,
    sniff,
    without_stamp,
)
from tests.support.fixtures import FIXTURES
from tests.support.perf_bytes import USER_MARK, comm, perf_data, piped, sample
from tests.support.pprof import small

SCRIPTS = sorted((FIXTURES / "perf" / "script").glob("*.txt"))
FOLDED = b"".join(b"task;f%d;g%d 1\n" % (n, n * 7919 % 1000) for n in range(20_000))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_perf_script_text_is_known_packed_or_not(path):
    data = path.read_bytes()
    assert sniff(data[:HEAD]) == "script"
    assert sniff(gzip.compress(data)[:HEAD]) == "script"


def test_folded_stacks_are_known_packed_or_not():
    assert sniff(FOLDED[:HEAD]) == "folded"
    assert sniff(gzip.compress(FOLDED)[:HEAD]) == "folded"
    assert sniff(b"a;b 1") == "folded"


def test_pprof_is_known_packed_or_not_and_when_only_its_head_is_seen():
    assert sniff(small()) == "pprof"
    assert sniff(gzip.compress(small())) == "pprof"
    assert sniff(small()[:50]) == "pprof"


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"PERFILE2" + b"\x00" * 100,
        b"2ELIFREP" + b"\x00" * 100,
        b"\x7fELF" + b"\x00" * 60,
        b'{"a": 1}\n',
        b"#!/bin/sh\necho 5\n",
        b"hello world\n",
        b"one 1\ntwo 2\n",
        b"\x1f\x8b\xff\xff\xff\xff",
        b"<html>\n</html>\n",
    ],
)
def test_other_formats_are_not_recognised(head):
    assert sniff(head) is None


@given(st.binary(max_size=200))
def test_junk_is_some_format_or_none_and_nothing_else(data):
    assert sniff(data) in {None, *READERS}


def capture(path, time, **more):
    path.write_bytes(perf_data([comm(5, 5, b"sh"), sample(time, 5, [USER_MARK, 1])], **more))
    return str(path)


def test_files_are_in_the_order_of_their_samples_and_not_of_their_names(tmp_path):
    # The clocks went back an hour in between.
    late = capture(tmp_path / "perf.data.2026102502300000", 9_000_000_000)
    early = capture(tmp_path / "perf.data.2026102502590000", 5_000_000_000)
    assert list(rotated([late, early])) == [early, late]
    assert without_stamp(early) == without_stamp(late) == str(tmp_path / "perf.data")


def test_the_first_time_is_taken_from_the_header_if_it_is_there(tmp_path):
    path = capture(tmp_path / "x", 50, features={21: struct.pack("<QQ", 7, 90)})
    assert first_sample_ns(path) == 7
    assert first_sample_ns(capture(tmp_path / "y", 50, features={21: bytes(16)})) == 50


def test_if_a_time_is_unknown_files_are_sorted_by_name(tmp_path):
    second = capture(tmp_path / "perf.data.2026111511473148", 5)
    first = str(tmp_path / "perf.data.2026111511453141")
    Path(first).write_bytes(piped([sample(9, 5, [USER_MARK, 1])]))
    current = capture(tmp_path / "perf.data", 1)
    found = rotated([current, second, first])
    assert list(found.items()) == [(first, None), (second, 5), (current, 1)]


def test_a_directorys_captures_are_found_by_what_they_hold(tmp_path):
    one = capture(tmp_path / "perf.data.2026111511453141", 1)
    (tmp_path / "kallsyms.gz").write_bytes(b"\x1f\x8b")
    (tmp_path / "perf.data.deeper").mkdir()
    assert members(tmp_path) == [one]
    assert not is_perf_directory(tmp_path)
    capture(tmp_path / "data", 2)
    assert is_perf_directory(tmp_path)
    with pytest.raises(SourceAbsent):
        members(tmp_path / "nowhere")


def test_what_cannot_be_read_has_no_time(tmp_path):
    (tmp_path / "x").write_bytes(b"PERFILE2" + bytes(300))
    (tmp_path / "y").write_bytes(perf_data([bytes(64)]))
    assert first_sample_ns(str(tmp_path / "x")) is None
    assert first_sample_ns(str(tmp_path / "y")) is None
