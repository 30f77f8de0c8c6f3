"""Where tracefs is found. The instance itself is tried on the running kernel, in tests/kernel."""

from __future__ import annotations

import pytest

from sexton.errors import SourceAbsent
from sexton.sources.tracefs.instance import find_tracefs
from tests.sources.cgroupfs.trees import Tree, mounts

TRACEFS = "/ /sys/kernel/tracing tracefs rw"
DEBUGFS = "/ /sys/kernel/debug debugfs rw"


def test_is_found_by_its_mount(tmp_path):
    tree = Tree(tmp_path)
    tree.write("/proc/1/mountinfo", mounts(DEBUGFS, TRACEFS))
    tree.make("/sys/kernel/tracing/events/cgroup/cgroup_rmdir")
    assert find_tracefs(tree.host()) == "/sys/kernel/tracing"


def test_is_found_inside_debugfs(tmp_path):
    tree = Tree(tmp_path)
    tree.write("/proc/1/mountinfo", mounts(DEBUGFS))
    tree.make("/sys/kernel/debug/tracing/events/cgroup/cgroup_rmdir")
    assert find_tracefs(tree.host()) == "/sys/kernel/debug/tracing"


def test_an_unmounted_one_says_so(tmp_path):
    tree = Tree(tmp_path)
    tree.write("/proc/1/mountinfo", "")
    with pytest.raises(SourceAbsent, match="tracefs is not mounted"):
        find_tracefs(tree.host())


def test_a_kernel_without_the_events_says_so(tmp_path):
    tree = Tree(tmp_path)
    tree.write("/proc/1/mountinfo", mounts(TRACEFS))
    with pytest.raises(SourceAbsent, match="no cgroup trace events"):
        find_tracefs(tree.host())
