"""`/proc/net/softnet_stat`."""

import pytest

from sexton.errors import SourceMalformed
from sexton.sources.procfs.softnet_stat import parse
from tests.support.fixtures import kernel_text


def test_the_columns_are_hexadecimal():
    first, second = parse(kernel_text("procfs.softnet_stat", "5.10"))
    assert (first.cpu, first.processed, first.time_squeeze) == (0, 0, 0)
    assert (second.cpu, second.processed, second.time_squeeze) == (1, 1, 1)
    (row,) = parse("0000255a 000000ff 00000010 0 0 0 0 0 0 0000000b 0000000c 0000000d 00000000\n")
    assert (row.processed, row.dropped, row.time_squeeze) == (0x255A, 0xFF, 0x10)
    assert (row.received_rps, row.flow_limit, row.backlog) == (0xB, 0xC, 0xD)


def test_the_core_column_is_believed_before_the_lines_place():
    line = "1 0 0 0 0 0 0 0 0 0 0 0 {:08x} 0 0\n"
    rows = list(parse(line.format(0) + line.format(0x1F)))
    assert [row.cpu for row in rows] == [0, 31]


def test_an_old_kernels_missing_columns_are_none_and_not_zero():
    old = "00000005 00000000 00000001 0 0 0 0 0 0 00000002\n"
    first, second = parse(old * 2)
    assert (first.cpu, second.cpu) == (0, 1)
    assert first.received_rps == 2
    assert first.flow_limit is None
    assert first.backlog is None


@pytest.mark.parametrize("line", ["1 2", "1 2 zz 0"])
def test_a_broken_line_is_named(line):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(f"1 0 0 0\n{line}\n"))
    assert caught.value.line == 2


@pytest.mark.parametrize("wide", ["1" * 9, "f" * 5000, "-1"])
def test_a_column_wider_than_the_counter_is_malformed(wide):
    with pytest.raises(SourceMalformed, match="32 bits"):
        list(parse(f"{wide} 00000000 00000000\n"))
