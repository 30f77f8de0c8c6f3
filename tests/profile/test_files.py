"""A profile's format is told by what is in it, whatever the file is called."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.profile.files import HEAD, READERS, sniff
from tests.support.fixtures import FIXTURES
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
def test_what_is_none_of_them_is_left_to_others(head):
    assert sniff(head) is None


@given(st.binary(max_size=200))
def test_junk_is_some_format_or_none_and_nothing_else(data):
    assert sniff(data) in {None, *READERS}
