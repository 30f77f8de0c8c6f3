"""`/proc/stat`."""

import pytest

from sexton.errors import SourceMalformed
from sexton.sources.procfs.stat import parse
from tests.support.fixtures import kernel_text


def test_reads_every_core_and_not_the_sum():
    rows = list(parse(kernel_text("procfs.stat", "6.18")))
    assert [row.cpu for row in rows] == [0, 1]
    assert all(row.idle_ms > 0 for row in rows)


def test_a_hole_in_the_numbering_is_an_offline_core():
    rows = list(parse("cpu0 1 0 2 3 4 5 6 7 0 0\ncpu7 1 0 2 3 4 5 6 7 0 0\n"))
    assert [row.cpu for row in rows] == [0, 7]


def test_kernels_without_steal_read_as_zero_steal():
    (row,) = parse("cpu0 1 0 2 3 4 5 6\n")
    assert row.steal_ms == 0


@pytest.mark.parametrize("line", ["cpu0 1 2", "cpux 1 0 2 3 4 5 6 7", "cpu0 1 0 x 3 4 5 6 7"])
def test_a_broken_line_is_named(line):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(f"cpu  1 2 3 4\n{line}\n"))
    assert caught.value.line == 2


def test_an_older_kernel_reads_the_same():
    rows = list(parse(kernel_text("procfs.stat", "5.10")))
    assert [row.cpu for row in rows] == [0, 1]
    assert all(row.system_ms > 0 for row in rows)
