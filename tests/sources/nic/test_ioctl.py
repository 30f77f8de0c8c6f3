"""The structures of SIOCETHTOOL."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.sources.nic.ioctl import Ethtool, drvinfo, request, set_size, strings, values

ORDERS = ("<", ">")


def test_a_request_is_a_name_and_a_pointer():
    raw = request("eth0", 0x1122334455667788)
    assert len(raw) == 40
    assert raw[:16] == b"eth0" + b"\0" * 12
    assert struct.unpack_from("P", raw, 16) == (0x1122334455667788,)


@pytest.mark.parametrize("name", ["", "a" * 16, "a\0b"])
def test_what_is_no_interfaces_name_is_refused(name: str):
    with pytest.raises(SourceMalformed):
        request(name, 0)


@pytest.mark.parametrize("order", ORDERS)
def test_answers_are_read_in_the_machines_byte_order(order: str):
    assert set_size(struct.pack(order + "IIQI", 0x37, 0, 2, 300), order) == 300
    assert values(struct.pack(order + "II2Q", 0x1D, 2, 1, 2**63), order) == (1, 2**63)
    names = struct.pack(order + "III32s32s", 0x1B, 1, 2, b"total_resets", b"\xff" * 32)
    assert strings(names, order) == ["total_resets", "\udcff" * 32]
    info = struct.pack(order + "I32s32s32s32s", 3, b"ena", b"2.11.0g", b"", b"0000:20:03.0")
    assert drvinfo(info + bytes(64), order).version == "2.11.0g"


def test_a_driver_without_counters_has_none():
    assert set_size(struct.pack("=IIQI", 0x37, 0, 0, 77)) == 0


def test_an_absurd_number_of_counters_is_refused():
    with pytest.raises(SourceMalformed):
        set_size(struct.pack("=IIQI", 0x37, 0, 2, 2**31))


@pytest.mark.parametrize("read", [drvinfo, set_size, strings, values])
def test_a_short_answer_is_malformed(read):
    with pytest.raises(SourceMalformed):
        read(b"\x01\x02\x03")


def test_fewer_values_than_promised_is_malformed():
    with pytest.raises(SourceMalformed):
        values(struct.pack("=II1Q", 0x1D, 5, 1))
    with pytest.raises(SourceMalformed):
        strings(struct.pack("=III32s", 0x1B, 1, 2, b"one"))


@given(st.binary(max_size=120), st.sampled_from([drvinfo, set_size, strings, values]))
def test_junk_is_an_answer_or_malformed(junk, read):
    with contextlib.suppress(SourceMalformed):
        read(junk)


def test_an_interface_that_is_not_there_is_absent():
    ethtool = Ethtool()
    try:
        with pytest.raises(SourceAbsent):
            ethtool.size("sexton-none")
    finally:
        ethtool.close()
