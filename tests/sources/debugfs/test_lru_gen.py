"""`/sys/kernel/debug/lru_gen`."""

from __future__ import annotations

import dataclasses

import pytest

from sexton.errors import SourceAbsent, SourceMalformed, SourceSkipped
from sexton.host.host import Host
from sexton.host.runner import Ended
from sexton.sources import cores
from sexton.sources.cores import Spared
from sexton.sources.debugfs.lru_gen import PATH, LruGen, parse
from tests.sources.cgroupfs.trees import Tree, mounts
from tests.support.fixtures import kernel_text

DEBUGFS = "/ /sys/kernel/debug debugfs rw"
CGROUP = "/ /sys/fs/cgroup cgroup2 rw"


@pytest.mark.parametrize("kernel", ["6.1", "6.12"])
def test_names_the_dead_of_a_crash_loop(kernel):
    paths = [row.path for row in parse(kernel_text("debugfs.lru_gen", kernel))]
    crashed = paths.count("/system.slice/demo-crash.service")
    assert crashed > 40
    assert "/" not in paths
    assert "/system.slice" not in paths


def test_a_hostile_name_is_kept_whole():
    name = b"/a b\x1b[2J\xff\x0b\x85".decode("utf-8", "surrogateescape") + "\u2028 memcg 0 /x"
    (row,) = parse(f"memcg     0 {name}\n node     0\n")
    assert row.path == name


@pytest.mark.parametrize("line", ["memcg x /a", "memcg 7", "memcg ", "memcg -1 /a"])
def test_a_broken_line_is_named(line):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(f"memcg     1 /\n{line}\n"))
    assert caught.value.line == 2


def test_without_controllers_the_one_unnamed_list_is_no_zombie():
    assert list(parse("memcg     0 \n node     0\n")) == []


def test_reads_another_hosts_tree(tmp_path):
    assert len(list(LruGen(tree(tmp_path, dying=62).host()).collect())) > 40


def test_too_many_cgroups_are_left_alone(tmp_path):
    with pytest.raises(SourceSkipped, match="70,001 memory cgroups"):
        list(LruGen(tree(tmp_path, dying=70_000).host()).collect())


def test_in_an_archive_the_price_is_paid(tmp_path):
    taken = dataclasses.replace(tree(tmp_path, dying=70_000).host(), moment=(1.0, 2.0))
    assert len(list(LruGen(taken).collect())) > 40


def test_an_archive_without_it_does_not_blame_the_kernel(tmp_path):
    made = tree(tmp_path, dying=1)
    (tmp_path / PATH.lstrip("/")).unlink()
    taken = dataclasses.replace(made.host(), moment=(1.0, 2.0))
    with pytest.raises(SourceAbsent, match="not collected"):
        list(LruGen(taken).collect())


def test_says_whether_debugfs_or_the_kernel_lacks_it(tmp_path):
    made = tree(tmp_path, dying=1)
    (tmp_path / PATH.lstrip("/")).unlink()
    with pytest.raises(SourceAbsent, match="not available on this kernel"):
        list(LruGen(made.host()).collect())
    made.write("/proc/1/mountinfo", mounts(CGROUP))
    with pytest.raises(SourceAbsent, match="debugfs is not mounted"):
        list(LruGen(made.host()).collect())


def test_on_the_node_itself_a_child_reads_it(tmp_path):
    file = tmp_path / "lru_gen"
    file.write_text("memcg     0 /gone\n")
    live = LruGen(Host(files=tree(tmp_path, 1).host().files, live=True))
    assert live._content(str(file)) == "memcg     0 /gone\n"
    with pytest.raises(SourceAbsent, match="No such file"):
        live._content(str(tmp_path / "none"))


def test_the_child_keeps_off_the_cores_of_the_nic(tmp_path, monkeypatch):
    pinned = []

    def run(argv, deadline_s, cpus=None):
        pinned.append(cpus)
        return Ended(0, b"", b"")

    monkeypatch.setattr(cores, "run", run)
    monkeypatch.setattr(cores, "off_the_nic", lambda _: Spared(frozenset({1}), ""))
    LruGen(Host(files=tree(tmp_path, 1).host().files, live=True))._content("/x")
    assert pinned == [{1}]


def tree(root, dying: int) -> Tree:
    made = Tree(root)
    made.write("/proc/1/mountinfo", mounts(DEBUGFS, CGROUP))
    made.write("/proc/cgroups", "memory\t0\t9\t1\n")
    made.write("/sys/fs/cgroup/cgroup.controllers", "memory\n")
    stat = f"nr_descendants 0\nnr_dying_descendants {dying}\n"
    made.write("/sys/fs/cgroup/cgroup.stat", stat)
    made.write(PATH, kernel_text("debugfs.lru_gen", "6.1"))
    return made
