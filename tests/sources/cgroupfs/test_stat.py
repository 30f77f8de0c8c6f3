"""`cgroup.stat`."""

from __future__ import annotations

import pytest

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.sources.cgroupfs import stat
from sexton.sources.cgroupfs.stat import Stats, parse
from tests.sources.cgroupfs.trees import Tree, mounts, recorded
from tests.support.fixtures import kernel_text


def test_reads_a_kernel_that_counts_cgroups_only():
    row = parse(kernel_text("cgroupfs.stat", "6.1"), "/system.slice")
    assert row.path == "/system.slice"
    assert (row.descendants, row.dying) == (8, 62)
    assert row.dying_memory is None


def test_reads_a_kernel_that_counts_memory_states():
    row = parse(kernel_text("cgroupfs.stat", "6.12"), "/")
    assert (row.descendants, row.dying, row.dying_memory) == (9, 55, 55)


@pytest.mark.parametrize(
    ("content", "line"),
    [("nr_descendants 1\n", 0), ("nr_descendants x\n", 1), ("nr_descendants 1\nnr_dying_desc", 0)],
)
def test_what_is_broken_is_named(content, line):
    with pytest.raises(SourceMalformed) as caught:
        parse(content, "/a")
    assert caught.value.line == line


def test_unknown_lines_of_newer_kernels_are_skipped():
    row = parse("nr_new max\nnr_descendants 1\nnr_dying_descendants 2\n", "/a")
    assert (row.descendants, row.dying) == (1, 2)


def test_goes_down_where_something_is_dying_and_nowhere_else(tmp_path):
    tree = v2(tmp_path)
    for path, dying in (("", 5), ("/a", 5), ("/a/b", 5), ("/a/c", 0), ("/quiet", 0)):
        put(tree, path, dying)
    put(tree, "/quiet/inner", 7)  # cannot be, and proves that nobody looked
    put(tree, "/a/b/leaf", 5)
    rows = {row.path: row.dying for row in Stats(tree.host()).collect()}
    assert rows == {"/": 5, "/a": 5, "/quiet": 0, "/a/b": 5, "/a/b/leaf": 5}


def test_a_cgroup_that_lost_its_file_meanwhile_is_left_out(tmp_path):
    tree = v2(tmp_path)
    put(tree, "", 1)
    put(tree, "/a", 1)
    tree.make("/sys/fs/cgroup/gone")
    assert [row.path for row in Stats(tree.host()).collect()] == ["/", "/a"]


def test_reads_no_more_than_its_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(stat, "MOST_READS", 4)
    tree = v2(tmp_path)
    put(tree, "", 1)
    for number in range(10):
        put(tree, f"/c{number}", 1)
    assert len(list(Stats(tree.host()).collect())) == 4


def test_v1_has_no_such_file(tmp_path):
    tree = recorded(tmp_path, "6.1-hybrid", "6.1-v1")
    with pytest.raises(SourceAbsent, match="v1"):
        list(Stats(tree.host()).collect())


def v2(root) -> Tree:
    tree = Tree(root)
    tree.write("/proc/1/mountinfo", mounts("/ /sys/fs/cgroup cgroup2 rw"))
    tree.write("/proc/cgroups", "memory\t0\t9\t1\n")
    tree.write("/sys/fs/cgroup/cgroup.controllers", "memory\n")
    return tree


def put(tree: Tree, path: str, dying: int) -> None:
    content = f"nr_descendants 0\nnr_dying_descendants {dying}\n"
    tree.write(f"/sys/fs/cgroup{path}/cgroup.stat", content)
