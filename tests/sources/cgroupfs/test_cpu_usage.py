"""CPU time of cgroups: `cpuacct.usage` on v1, `cpu.stat` and `cpu.pressure` on v2."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.model.rows.cgroup import CgroupCpu
from sexton.sources.cgroupfs import cpu_usage
from sexton.sources.cgroupfs.cpu_usage import CpuUsage, parse
from tests.sources.cgroupfs.trees import Tree, mounts
from tests.support.examples import examples
from tests.support.fixtures import kernel_text


def test_v1_counts_in_nanoseconds():
    assert parse(kernel_text("cgroupfs.cpu_usage", "6.18"), "/a") == CgroupCpu("/a", 311178, None)


def test_v2_counts_in_microseconds_and_has_the_time_waited():
    both = kernel_text("cgroupfs.cpu_usage", "6.1")  # cpu.stat, and cpu.pressure after it
    assert parse(both, "/a", both) == CgroupCpu("/a", 478545, 9497)
    assert parse(both, "/a") == CgroupCpu("/a", 478545, None)


@pytest.mark.parametrize("content", ["", "usage_usec x\n", "user_usec 4\n", "9" * 40])
def test_what_is_broken_is_malformed_and_not_zero(content):
    with pytest.raises(SourceMalformed):
        parse(content, "/a")


def test_reads_the_hierarchy_that_counts_but_not_its_root_nor_what_lies_deep(tmp_path):
    tree = Tree(tmp_path)
    lines = ("/ /sys/fs/cgroup/unified cgroup2 rw", "/ /sys/fs/cgroup/cpuacct cgroup rw,cpuacct")
    tree.write("/proc/1/mountinfo", mounts(*lines))
    tree.write("/sys/fs/cgroup/unified/x/cpu.stat", "usage_usec 1\n")
    for path in ("", "/a", "/a/b/c/d", "/a/b/c/d/e"):
        tree.write(f"/sys/fs/cgroup/cpuacct{path}/cpuacct.usage", "5000\n")
    rows = list(CpuUsage(tree.host()).collect())
    assert [row.path for row in rows] == ["/a", "/a/b/c/d"]
    assert {row.used_us for row in rows} == {5}


def test_reads_so_many_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(cpu_usage, "MOST_READS", 2)
    tree = Tree(tmp_path)
    tree.write("/proc/1/mountinfo", mounts("/ /sys/fs/cgroup cgroup2 rw"))
    for name in "abcd":
        tree.write(f"/sys/fs/cgroup/{name}/cpu.stat", "usage_usec 1\n")
        tree.write(f"/sys/fs/cgroup/{name}/cpu.pressure", "some avg10=0.00 total=7\n")
    rows = list(CpuUsage(tree.host()).collect())
    assert [row.waited_us for row in rows] == [7, 7]


def test_without_such_a_hierarchy_it_is_absent(tmp_path):
    tree = Tree(tmp_path)
    tree.write("/proc/1/mountinfo", mounts("/ /sys/fs/cgroup/memory cgroup rw,memory"))
    with pytest.raises(SourceAbsent):
        list(CpuUsage(tree.host()).collect())


@settings(max_examples=examples(150))
@given(st.text(max_size=60), st.text(max_size=60))
def test_junk_is_a_row_or_malformed_and_never_a_crash(content, pressure):
    with contextlib.suppress(SourceMalformed):
        parse(content, "/a", f"some {pressure}")
