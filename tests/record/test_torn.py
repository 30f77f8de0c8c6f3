"""A torn perf.data and its head."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from sexton.record.stacks import mend

OFFSET = 112
HEAD = struct.pack("=8s8Q32s", b"PERFILE2", 104, 144, 104, 8, OFFSET, 50, 0, 0, b"\xff" * 32)


def size_and_sections(path):
    fields = struct.unpack("=8s8Q32s", path.read_bytes()[:104])
    return fields[6], fields[9]


def test_a_file_without_a_head_gets_its_siblings_with_its_own_size(tmp_path):
    torn, whole = tmp_path / "torn", tmp_path / "whole"
    whole.write_bytes(HEAD + b"attrs..." + b"x" * 50 + b"sections")
    torn.write_bytes(bytes(OFFSET) + b"y" * 30)
    assert mend(str(torn), str(whole))
    assert size_and_sections(torn) == (30, bytes(32))
    assert torn.read_bytes()[104:] == b"attrs..." + b"y" * 30
    assert whole.read_bytes().startswith(HEAD)


def test_a_file_with_a_head_and_no_size_is_given_it(tmp_path):
    torn = tmp_path / "torn"
    torn.write_bytes(HEAD.replace(struct.pack("=Q", 50), bytes(8)) + b"attrs..." + b"y" * 9)
    assert mend(str(torn), None)
    assert size_and_sections(torn) == (9, bytes(32))


def test_a_whole_file_is_left_as_it_is(tmp_path):
    torn = tmp_path / "torn"
    torn.write_bytes(HEAD + b"attrs..." + b"y" * 50 + b"sections")
    before = torn.read_bytes()
    assert mend(str(torn), None)
    assert torn.read_bytes() == before


def test_without_a_sibling_or_samples_nothing_is_done(tmp_path):
    torn, whole = tmp_path / "torn", tmp_path / "whole"
    whole.write_bytes(HEAD + b"attrs..." + b"x" * 50)
    for content in (bytes(OFFSET) + b"y", bytes(50), b""):
        torn.write_bytes(content)
        assert not mend(str(torn), None)
        assert torn.read_bytes() == content
    torn.write_bytes(bytes(OFFSET))
    assert not mend(str(torn), str(whole))


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_junk_is_mended_or_left_and_never_grows(tmp_path, one, other):
    torn, whole = tmp_path / "torn", tmp_path / "whole"
    torn.write_bytes(one)
    whole.write_bytes(other)
    mend(str(torn), str(whole))
    assert len(torn.read_bytes()) == len(one)
