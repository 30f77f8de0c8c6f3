"""`/proc/softirqs`."""

import pytest

from sexton.errors import SourceMalformed
from sexton.sources.procfs.softirqs import parse
from tests.support.fixtures import kernel_text


def test_counts_go_to_their_core_and_kind():
    rows = list(parse(kernel_text("procfs.softirqs", "6.1")))
    assert [row.cpu for row in rows] == [0, 1]
    assert (rows[0].timer, rows[1].timer) == (3257, 2958)
    assert (rows[0].net_rx, rows[1].net_rx) == (7, 3)
    assert (rows[0].tasklet, rows[1].tasklet) == (1, 0)
    assert (rows[0].sched, rows[1].rcu) == (5930, 10395)


def test_cores_keep_their_numbers_where_some_are_missing():
    rows = list(parse("  CPU0 CPU5\nNET_RX: 1 2\nNET_TX: 3 4\n"))
    assert [(row.cpu, row.net_rx, row.net_tx) for row in rows] == [(0, 1, 3), (5, 2, 4)]


def test_a_kind_the_kernel_lacks_is_none_and_a_new_one_is_skipped():
    (row,) = parse("  CPU0\nTIMER: 7\nBRAND_NEW: 9\n")
    assert row.timer == 7
    assert row.net_rx is None


@pytest.mark.parametrize("line", ["NET_RX: 1", "NET_RX: 1 2 3", "NET_RX: 1 x"])
def test_a_broken_line_is_named(line):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(f"  CPU0 CPU1\nHI: 0 0\n{line}\n"))
    assert caught.value.line == 3


@pytest.mark.parametrize("text", ["", "TIMER: 1 2\n", "CPU0 CPUx\n"])
def test_a_table_without_its_header_is_malformed(text):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(text))
    assert caught.value.line == 1
