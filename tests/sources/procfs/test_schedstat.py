"""`/proc/schedstat`."""

import pytest

from sexton.errors import SourceMalformed
from sexton.sources.procfs.schedstat import parse
from tests.support.fixtures import kernel_text


def test_keeps_run_time_wait_time_and_timeslices_of_each_core():
    first, second = parse(kernel_text("procfs.schedstat", "6.1"))
    assert (first.cpu, first.run_ns, first.wait_ns) == (0, 29582999147, 9688968269)
    assert (second.cpu, second.timeslices) == (1, 10965)


def test_a_newer_version_with_the_same_core_line_is_read():
    (row,) = parse("version 19\nnews 1 2\ncpu3 0 0 0 0 0 0 7 8 9 10\n")
    assert (row.cpu, row.run_ns, row.wait_ns, row.timeslices) == (3, 7, 8, 9)


def test_a_version_with_other_columns_is_refused():
    with pytest.raises(SourceMalformed, match="version 14"):
        list(parse("version 14\ncpu0 0 0 0 0 0 0 0 0 0 7 8 9\n"))


@pytest.mark.parametrize("line", ["cpu0 0 0 0 0 0 0 7 8", "cpux 0 0 0 0 0 0 7 8 9", "version"])
def test_a_broken_line_is_named(line):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(f"timestamp 1\n{line}\n"))
    assert caught.value.line == 2
