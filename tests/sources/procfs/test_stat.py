"""`/proc/stat`."""

import pytest

from sexton.errors import SourceMalformed
from sexton.model.rows.cpu import CoreTimes, ReadyTasks
from sexton.sources.procfs.stat import parse
from tests.support.fixtures import kernel_text


def cores(kernel):
    return [row for row in parse(kernel_text("procfs.stat", kernel)) if isinstance(row, CoreTimes)]


def test_counts_the_tasks_that_are_ready_to_run():
    text = "cpu0 1 0 2 3 4 5 6 7 0 0\nprocs_running 25\nprocs_blocked 2\n"
    assert list(parse(text))[-1] == ReadyTasks(running=25, blocked=2)
    assert list(parse("procs_running 3\n")) == [ReadyTasks(3, None)]


@pytest.mark.parametrize("kernel", ["5.10", "6.1", "6.18"])
def test_every_kernel_counts_them(kernel):
    ready = [row for row in parse(kernel_text("procfs.stat", kernel)) if type(row) is ReadyTasks]
    assert [row.running >= 1 for row in ready] == [True]


def test_reads_every_core_and_not_the_sum():
    rows = cores("6.18")
    assert [row.cpu for row in rows] == [0, 1]
    assert all(row.idle_ms > 0 for row in rows)


def test_a_hole_in_the_numbering_is_an_offline_core():
    rows = list(parse("cpu0 1 0 2 3 4 5 6 7 0 0\ncpu7 1 0 2 3 4 5 6 7 0 0\n"))
    assert [row.cpu for row in rows] == [0, 7]


def test_kernels_without_steal_read_as_zero_steal():
    (row,) = parse("cpu0 1 0 2 3 4 5 6\n")
    assert row.steal_ms == 0


@pytest.mark.parametrize(
    "line", ["cpu0 1 2", "cpux 1 0 2 3 4 5 6 7", "cpu0 1 0 x 3 4 5 6 7", "procs_running x"]
)
def test_a_broken_line_is_named(line):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(f"cpu  1 2 3 4\n{line}\n"))
    assert caught.value.line == 2


def test_an_older_kernel_reads_the_same():
    rows = cores("5.10")
    assert [row.cpu for row in rows] == [0, 1]
    assert all(row.system_ms > 0 for row in rows)
