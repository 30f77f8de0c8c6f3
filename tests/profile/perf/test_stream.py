"""Untrusted bytes: read in pieces, unpacked, within limits."""

from __future__ import annotations

import contextlib
import errno
import gzip
from io import BytesIO, RawIOBase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.model.profile import Facts
from sexton.profile.perf.stream import Bounds, lines, opening, pieces, whole

VARIED = bytes((n * n * 7919 >> 7) & 0xFF for n in range(3_000_000))


def test_bytes_are_given_as_they_are_packed_or_not():
    for data in (VARIED, b"", b"short"):
        assert b"".join(pieces(BytesIO(data), Facts())) == data
        assert b"".join(pieces(BytesIO(gzip.compress(data)), Facts())) == data


def test_a_piece_is_never_much_larger_than_a_megabyte():
    packed = gzip.compress(b"x" * (40 << 20))
    assert max(map(len, pieces(BytesIO(packed), Facts()))) <= 1 << 20


def test_what_was_packed_a_thousand_times_is_refused_before_it_is_unpacked():
    packed = BytesIO(gzip.compress(b"\n" * (200 << 20), 9))
    read: list[int] = []
    with pytest.raises(SourceMalformed, match="more than 250 times its size: refused"):
        read.extend(map(len, pieces(packed, Facts(path="bomb.gz"))))
    assert sum(read) <= 65 << 20


def test_members_count_together():
    packed = gzip.compress(b"x" * 1000) * 50
    with pytest.raises(SourceMalformed, match=r"more than 9\.8 KiB"):
        list(pieces(BytesIO(packed), Facts(), Bounds(unpacked=10_000)))


def test_an_io_error_is_reported_as_such():
    class Broken(RawIOBase):
        def read(self, size: int = -1) -> bytes:
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(SourceMalformed, match="it: Input/output error"):
        list(pieces(Broken(), Facts(path="it")))


def test_lines_are_whole_wherever_the_pieces_end():
    data = b"\n".join(b"%d" % n * (n % 50) for n in range(100_000))
    found = [line for some in lines(BytesIO(data), Facts()) for line in some]
    assert found == data.split(b"\n")


def test_everything_at_once_is_bounded_too():
    assert whole(BytesIO(VARIED), Facts(), Bounds()) == VARIED
    with pytest.raises(SourceMalformed, match="larger than 1000 B: refused"):
        whole(BytesIO(VARIED), Facts(), Bounds(unpacked=1000))


@given(st.binary(max_size=200))
def test_junk_after_the_gzip_magic_is_refused_or_read_never_more(data):
    opening(b"\x1f\x8b" + data)
    with contextlib.suppress(SourceMalformed):
        list(pieces(BytesIO(b"\x1f\x8b" + data), Facts()))
