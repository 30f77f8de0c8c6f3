"""`cpu.stat`."""

from __future__ import annotations

import pytest

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.host import Host
from sexton.model.rows.cgroup import CgroupThrottle
from sexton.sources.cgroupfs.cpu_stat import CpuStats, parse
from tests.sources.cgroupfs.trees import Tree, mounts
from tests.support.fixtures import kernel_text

THROTTLED = "nr_periods 9\nnr_throttled 4\nthrottled_usec 700\n"


def test_v1_counts_in_nanoseconds():
    row = parse(kernel_text("cgroupfs.cpu_stat", "6.18"), "/job")
    assert row == CgroupThrottle("/job", periods=11, throttled=10, throttled_us=718951)


def test_v2_counts_in_microseconds():
    assert parse(THROTTLED, "/job") == CgroupThrottle("/job", 9, 4, 700)


def test_a_cgroup_without_a_quota_gives_no_row():
    assert parse(kernel_text("cgroupfs.cpu_stat", "6.1"), "/") is None


@pytest.mark.parametrize(
    "content", ["nr_periods 3\n", "nr_periods x\n", "nr_periods 3\nnr_throttled 1\n"]
)
def test_what_is_broken_is_malformed_and_not_zero(content):
    with pytest.raises(SourceMalformed):
        parse(content, "/a")


def test_reads_the_v1_cpu_hierarchy_where_there_is_one(tmp_path):
    tree = Tree(tmp_path)
    lines = ("/ /sys/fs/cgroup/unified cgroup2 rw", "/ /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct")
    tree.write("/proc/1/mountinfo", mounts(*lines))
    tree.write("/sys/fs/cgroup/unified/x/cpu.stat", THROTTLED)
    tree.write("/sys/fs/cgroup/cpu/job/cpu.stat", kernel_text("cgroupfs.cpu_stat", "6.18"))
    assert [row.path for row in CpuStats(tree.host()).collect()] == ["/job"]


def test_on_a_live_v2_node_only_those_with_a_quota_are_read(tmp_path):
    tree = Tree(tmp_path)
    tree.write("/proc/self/mountinfo", mounts("/ /sys/fs/cgroup cgroup2 rw"))
    for name, quota in (("capped", "20000 100000\n"), ("free", "max 100000\n")):
        tree.write(f"/sys/fs/cgroup/{name}/cpu.max", quota)
        tree.write(f"/sys/fs/cgroup/{name}/cpu.stat", THROTTLED)
    tree.write("/sys/fs/cgroup/off/cpu.stat", THROTTLED)
    live = Host(tree.host().files, live=True)
    assert [row.path for row in CpuStats(live).collect()] == ["/capped"]


def test_without_a_cpu_controller_it_is_absent(tmp_path):
    tree = Tree(tmp_path)
    tree.write("/proc/1/mountinfo", mounts("/ /sys/fs/cgroup/memory cgroup rw,memory"))
    with pytest.raises(SourceAbsent):
        list(CpuStats(tree.host()).collect())
