"""`/proc/net/dev`."""

import pytest

from sexton.errors import SourceMalformed
from sexton.sources.procfs.net_dev import parse
from tests.support.fixtures import kernel_text


def test_reads_both_directions_of_every_interface():
    rows = {row.name: row for row in parse(kernel_text("procfs.net_dev", "6.18"))}
    assert set(rows) == {"lo", "ifb0", "ifb1", "eth0"}
    assert (rows["eth0"].rx_bytes, rows["eth0"].rx_packets) == (377717404, 9543)
    assert (rows["eth0"].tx_bytes, rows["eth0"].tx_packets) == (549997, 6524)


def test_errors_and_drops_are_not_swapped():
    (row,) = parse("  x: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n")
    assert (row.rx_bytes, row.rx_packets, row.rx_errors, row.rx_dropped) == (1, 2, 3, 4)
    assert (row.tx_bytes, row.tx_packets, row.tx_errors, row.tx_dropped) == (5, 6, 7, 8)


def test_an_old_kernels_number_may_touch_the_colon():
    (row,) = parse("eth0:1:123456789 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n")
    assert (row.name, row.rx_bytes) == ("eth0:1", 123456789)


@pytest.mark.parametrize("line", ["eth0: 1 2 3", "eth0: a 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0"])
def test_a_broken_line_is_named(line):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(f"Inter-| Receive\n face |bytes\n{line}\n"))
    assert caught.value.line == 3
