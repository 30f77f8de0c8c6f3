"""`/proc/cgroups`."""

import pytest

from sexton.errors import SourceMalformed
from sexton.sources.procfs.cgroups import parse
from tests.support.fixtures import kernel_text


def memory(kernel):
    return {row.name: row for row in parse(kernel_text("procfs.cgroups", kernel))}["memory"]


def test_memory_on_v2_has_hierarchy_zero():
    assert (memory("6.1").hierarchy, memory("6.1").cgroups) == (0, 117)


@pytest.mark.parametrize(("kernel", "cgroups"), [("6.1-hybrid", 119), ("5.10", 145)])
def test_memory_on_v1_has_a_hierarchy_and_counts_the_dying_too(kernel, cgroups):
    assert memory(kernel).hierarchy > 0
    assert memory(kernel).cgroups == cgroups


def test_a_kernel_that_lists_no_memory_gives_no_row_for_it():
    rows = list(parse("#subsys_name\thierarchy\tnum_cgroups\tenabled\npids\t0\t9\t1\n"))
    assert [row.name for row in rows] == ["pids"]


def test_a_disabled_controller_says_so():
    (row,) = parse("memory\t0\t1\t0\n")
    assert row.enabled is False


@pytest.mark.parametrize("line", ["memory\t6\t115", "memory\t6\tmany\t1"])
def test_a_broken_line_is_named(line):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(f"#subsys_name\n{line}\n"))
    assert caught.value.line == 2
