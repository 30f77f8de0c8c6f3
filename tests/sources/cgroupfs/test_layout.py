"""Which hierarchy memory is on, and whether it may be counted node-wide."""

from __future__ import annotations

import pytest

from sexton.host.host import Host, open_host
from sexton.sources.cgroupfs.layout import HOST_MOUNT, HOST_NAMESPACE, read_layout
from tests.sources.cgroupfs.trees import Tree, mounts, recorded

ON_V1 = "memory\t4\t40\t1\n"
ON_V2 = "memory\t0\t40\t1\n"
V1 = "/ /sys/fs/cgroup/memory cgroup rw,memory"
V2 = "/ /sys/fs/cgroup cgroup2 rw"
TOP1 = "/sys/fs/cgroup/memory"


@pytest.mark.parametrize(
    ("kernel", "directories", "expected"),
    [
        ("6.1", "6.1-v2", ("v2", 2, "/sys/fs/cgroup")),
        ("6.1-hybrid", "6.1-v1", ("hybrid", 1, "/sys/fs/cgroup/memory")),
        ("5.10", "5.10-v1", ("v1", 1, "/sys/fs/cgroup/memory")),
    ],
)
def test_recognises_the_hierarchies_of_real_kernels(tmp_path, kernel, directories, expected):
    tree = recorded(tmp_path, kernel, directories)
    tree.write(f"{expected[2]}/cgroup.controllers", "cpu memory\n")
    layout = read_layout(tree.host())
    assert (layout.hierarchy, layout.version, layout.mount_point) == expected


def test_only_v1_mounts_are_v1(tmp_path):
    tree = one(tmp_path, V1, ON_V1)
    assert read_layout(tree.host()).hierarchy == "v1"


def test_a_real_v1_root_is_comparable(tmp_path):
    tree = one(tmp_path, V1, ON_V1)
    tree.write(f"{TOP1}/release_agent")
    layout = read_layout(tree.host())
    assert layout.comparable
    assert layout.reason is None


def test_a_v1_directory_that_is_no_root_is_not_comparable_whatever_its_mount_says(tmp_path):
    tree = one(tmp_path, V1, ON_V1)
    tree.namespace()
    tree.write(f"{TOP1}/notify_on_release", "0\n")
    layout = read_layout(tree.host())
    assert not layout.comparable
    assert layout.reason == "/sys/fs/cgroup/memory is not the root of its hierarchy"


def test_a_v2_directory_with_a_type_is_no_root(tmp_path):
    tree = one(tmp_path, V2, ON_V2)
    tree.write("/sys/fs/cgroup/cgroup.controllers", "memory\n")
    tree.write("/sys/fs/cgroup/cgroup.type", "domain\n")
    tree.namespace()
    assert not read_layout(tree.host()).comparable


def test_a_host_whose_init_is_in_a_namespace_is_not_comparable(tmp_path):
    tree = one(tmp_path, V1, ON_V1)
    tree.write(f"{TOP1}/release_agent")
    tree.namespace("cgroup:[4026532999]")
    layout = read_layout(tree.host())
    assert not layout.comparable
    assert layout.reason == "the host's first process runs in a cgroup namespace"


def test_a_copied_tree_counts_only_with_the_namespace_on_record(tmp_path):
    tree = one(tmp_path, V1, ON_V1)
    tree.write(f"{TOP1}/cgroup.procs", "1\n")
    assert "cannot verify" in str(read_layout(tree.host()).reason)
    tree.namespace()
    assert read_layout(tree.host()).comparable


def test_the_root_seen_from_inside_a_namespace_reads_as_dots_and_is_still_the_root(tmp_path):
    tree = one(tmp_path, f"/../.. {TOP1} cgroup rw,memory", ON_V1)
    tree.write(f"{TOP1}/release_agent")
    assert read_layout(tree.host()).comparable


def test_a_mounted_subtree_is_named(tmp_path):
    tree = one(tmp_path, f"/docker/a\\040b {TOP1} cgroup rw,memory", ON_V1)
    tree.write(f"{TOP1}/notify_on_release", "0\n")
    layout = read_layout(tree.host())
    assert layout.reason == "only /docker/a b of the hierarchy is mounted"
    assert layout.advice == HOST_MOUNT


def test_of_several_mounts_the_one_that_is_the_root_is_taken(tmp_path):
    tree = Tree(tmp_path)
    lines = (V1.replace(TOP1, "/a"), V1.replace(TOP1, "/var/lib/long/memory"))
    tree.write("/proc/1/mountinfo", mounts(*lines))
    tree.write("/proc/cgroups", ON_V1)
    tree.write("/a/notify_on_release", "0\n")
    tree.write("/var/lib/long/memory/release_agent")
    layout = read_layout(tree.host())
    assert layout.mount_point == "/var/lib/long/memory"
    assert layout.comparable


def test_a_mount_hidden_under_another_is_not_used(tmp_path):
    tree = Tree(tmp_path)
    tree.write("/proc/1/mountinfo", mounts(V2, "/ /sys/fs/cgroup tmpfs rw", V1))
    tree.write("/proc/cgroups", ON_V1)
    tree.write(f"{TOP1}/release_agent")
    assert read_layout(tree.host()).hierarchy == "v1"


def test_an_empty_mount_point_says_that_it_is_not_shown_here(tmp_path):
    tree = one(tmp_path, V1, ON_V1)
    tree.make(TOP1)
    layout = read_layout(tree.host())
    assert layout.mount_point is None
    assert layout.reason == "/sys/fs/cgroup/memory is mounted on the host but empty here"


@pytest.mark.parametrize(
    ("table", "version", "reason"),
    [
        (ON_V1, 1, "memory is on a cgroup v1 hierarchy that is not mounted here"),
        (ON_V2, 2, "no cgroup hierarchy is mounted here"),
        ("", None, "no cgroup hierarchy is mounted here"),
        ("memory\t0\t1\t0\n", None, "the memory controller is disabled"),
    ],
)
def test_without_any_mount_the_reason_is_clear(tmp_path, table, version, reason):
    tree = Tree(tmp_path)
    tree.write("/proc/1/mountinfo", "")
    tree.write("/proc/cgroups", table)
    layout = read_layout(tree.host())
    assert layout.mount_point is None
    assert layout.version == version
    assert str(layout.reason).startswith(reason)


def test_v2_without_the_memory_controller_says_so(tmp_path):
    tree = one(tmp_path, V2, ON_V2)
    tree.write("/sys/fs/cgroup/cgroup.controllers", "cpu pids\n")
    layout = read_layout(tree.host())
    assert layout.version is None
    assert layout.reason == "no cgroup hierarchy here has a memory controller"


def test_a_kernel_without_the_memory_row_is_read_from_its_controllers(tmp_path):
    tree = one(tmp_path, V2, "cpuset\t0\t40\t1\n")
    tree.write("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n")
    layout = read_layout(tree.host())
    assert (layout.version, layout.comparable) == (2, True)


class InNamespace(Tree):
    """This machine, from a cgroup namespace."""

    def host(self) -> Host:
        return Host(open_host(str(self.root)).files, live=True)


def in_namespace(root, line: str, table: str) -> Tree:
    tree = InNamespace(root)
    tree.write("/proc/self/mountinfo", mounts(line))
    tree.write("/proc/cgroups", table)
    tree.make(line.split(" ")[1])
    (root / "proc/self/ns").mkdir()
    (root / "proc/self/ns/cgroup").symlink_to("cgroup:[4026532711]")
    return tree


def test_this_machine_in_a_namespace_gets_advice(tmp_path):
    tree = in_namespace(tmp_path, V1, ON_V1)
    tree.write(f"{TOP1}/notify_on_release", "0\n")
    layout = read_layout(tree.host())
    assert (layout.reason, layout.advice) == ("sexton runs in a cgroup namespace", HOST_NAMESPACE)


@pytest.mark.parametrize(
    ("line", "table", "file", "version"),
    [
        (f"/../../..{V1[1:]}", ON_V1, f"{TOP1}/release_agent", 1),
        (f"/../../../..{V2[1:]}", ON_V2, "/sys/fs/cgroup/cgroup.controllers", 2),
    ],
)
def test_a_pod_with_the_hosts_mount_sees_the_node(tmp_path, line, table, file, version):
    tree = in_namespace(tmp_path, line, table)
    tree.write(file, "memory\n")
    layout = read_layout(tree.host())
    assert (layout.version, layout.comparable, layout.reason) == (version, True, None)


def test_a_pod_with_a_sibling_mounted_does_not(tmp_path):
    tree = in_namespace(tmp_path, f"/../other{V2[1:]}", ON_V2)
    tree.write("/sys/fs/cgroup/cgroup.controllers", "memory\n")
    tree.write("/sys/fs/cgroup/cgroup.type", "domain\n")
    assert not read_layout(tree.host()).comparable


def one(root, line: str, table: str) -> Tree:
    tree = Tree(root)
    tree.write("/proc/1/mountinfo", mounts(line))
    tree.write("/proc/cgroups", table)
    tree.make(line.split(" ")[1])
    return tree
