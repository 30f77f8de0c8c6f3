"""How many memory cgroups there are."""

from __future__ import annotations

import pytest

from sexton.host.host import Host
from sexton.model.rows.cgroup import CgroupCensus, CgroupDir
from sexton.sources.cgroupfs import census
from sexton.sources.cgroupfs.layout import Layout
from tests.sources.cgroupfs.trees import Tree, recorded
from tests.support.fixtures import kernel_text

TOP = "/sys/fs/cgroup/memory"
NODE = Layout("v1", 1, TOP, True, None)
POD = Layout("v1", 1, TOP, False, "sexton runs in a cgroup namespace", "run with the host's")


def collect(tree: Tree) -> tuple[CgroupCensus, list[CgroupDir]]:
    first, *rest = census.Census(tree.host()).collect()
    return first, rest


def test_on_v1_the_dying_are_what_no_directory_accounts_for(tmp_path):
    tree = recorded(tmp_path, "6.1-hybrid", "6.1-v1")
    tree.write(f"{TOP}/release_agent")
    row, directories = collect(tree)
    known = memory_of("6.1-hybrid")
    assert (row.total, row.live) == (known, len(directories))
    assert row.dying == known - 16
    assert (row.scope, row.method) == ("node", "/proc/cgroups minus directories")
    assert row.reason is None


def test_on_v2_the_kernel_counts_them(tmp_path):
    tree = recorded(tmp_path, "6.1", "6.1-v2")
    tree.write("/sys/fs/cgroup/cgroup.controllers", "memory\n")
    tree.write("/sys/fs/cgroup/cgroup.stat", "nr_descendants 15\nnr_dying_descendants 62\n")
    row, directories = collect(tree)
    assert (row.total, row.live, row.dying) == (78, 16, 62)
    assert len(directories) == 16
    assert (row.scope, row.method) == ("node", "cgroup.stat nr_dying_descendants")


def test_dying_memory_states_are_preferred_where_the_kernel_counts_them(tmp_path):
    tree = recorded(tmp_path, "6.1", "6.1-v2")
    tree.write("/sys/fs/cgroup/cgroup.controllers", "memory\n")
    counted = "nr_descendants 15\nnr_dying_descendants 62\nnr_dying_subsys_memory 60\n"
    tree.write("/sys/fs/cgroup/cgroup.stat", counted)
    row, _ = collect(tree)
    assert (row.dying, row.method) == (60, "cgroup.stat nr_dying_subsys_memory")


def test_a_v2_subtree_has_numbers_of_its_own_and_is_labelled(tmp_path):
    tree = recorded(tmp_path, "6.1", "6.1-v2")
    tree.write("/sys/fs/cgroup/cgroup.controllers", "memory\n")
    tree.write("/sys/fs/cgroup/cgroup.type", "domain\n")
    tree.write("/sys/fs/cgroup/cgroup.stat", "nr_descendants 15\nnr_dying_descendants 3\n")
    row, _ = collect(tree)
    assert (row.scope, row.live, row.dying) == ("subtree", 16, 3)
    assert "run with the host's cgroup namespace" in row.reason


def test_directories_say_how_many_children_they_have(tmp_path):
    tree = recorded(tmp_path, "6.1-hybrid", "6.1-v1")
    _, directories = collect(tree)
    children = {row.path: row.children for row in directories}
    assert (children["/"], children["/system.slice"], children["/user.slice"]) == (7, 7, 0)
    assert len({row.inode for row in directories}) == len(directories)


def test_a_namespace_invents_no_zombie():
    row, _ = census.take(host(counts=[412, 412], live=300), POD)
    assert (row.total, row.live, row.dying, row.scope) == (None, 300, None, "subtree")
    assert row.reason == (
        "sexton runs in a cgroup namespace: 412 node-wide against 300 directories are not "
        "comparable; run with the host's"
    )


def test_a_missing_row_is_unknown_and_not_zero():
    row, _ = census.take(host(counts=[None, None], live=5), NODE)
    assert (row.total, row.live, row.dying) == (None, 5, None)
    assert "no memory row" in row.reason


def test_a_count_that_moved_is_taken_again():
    row, _ = census.take(host(counts=[10, 14, 14, 14], live=4), NODE)
    assert (row.dying, row.reason) == (10, None)


def test_births_during_both_walks_invent_no_zombie():
    row, _ = census.take(host(counts=[4, 9, 9, 14], live=9), NODE)
    assert row.dying == 0
    assert "moved between 9 and 14" in row.reason


def test_coming_and_going_is_never_below_zero_and_says_so():
    row, _ = census.take(host(counts=[4, 9, 8, 11], live=10), NODE)
    assert (row.dying, row.live) == (0, 10)
    assert "came and went" in row.reason


def test_more_directories_than_cgroups_is_another_tree_and_unknown():
    row, _ = census.take(host(counts=[8, 8], live=10), NODE)
    assert row.dying is None
    assert "not the same tree" in row.reason


def test_without_a_mount_the_total_is_all_there_is():
    nowhere = Layout("v1", 1, None, False, "not mounted", "mount it")
    row, _ = census.take(host(counts=[50], live=1), nowhere)
    assert (row.total, row.live, row.dying) == (50, None, None)
    assert row.reason == "not mounted; mount it"


def test_beyond_a_bound_directories_are_counted_and_not_kept(monkeypatch):
    monkeypatch.setattr(census, "MOST_DIRECTORIES", 3)
    row, walked = census.take(host(counts=[10, 10], live=7), NODE)
    assert (row.live, row.dying, len(walked.kept)) == (7, 3, 3)
    assert row.reason == "only the first 3 of 7 directories were kept"


def test_a_directory_that_may_not_be_listed_makes_the_count_unknown():
    from sexton.errors import SourceDenied

    files = Moving([9, 9], 3)
    files.names = lambda path: (_ for _ in ()).throw(SourceDenied(path, "Permission denied"))
    row, _ = census.take(Host(files, live=False), NODE)
    assert (row.live, row.dying) == (None, None)
    assert "cannot list" in row.reason


class Moving:
    """A tree whose /proc/cgroups says the next number each time, over `live` directories."""

    def __init__(self, counts: list[int | None], live: int) -> None:
        self._counts = list(counts)
        self._live = live

    def read(self, path: str, limit: int = 0) -> bytes:
        assert path == "/proc/cgroups"
        number = self._counts.pop(0)
        return b"cpuset\t1\t1\t1\n" if number is None else f"memory\t4\t{number}\t1\n".encode()

    def names(self, path: str) -> list[str]:
        return [f"c{number}" for number in range(self._live - 1)] if path == TOP else []

    def link(self, path: str) -> str:
        raise AssertionError(path)

    def status(self, path: str):
        from sexton.host.reader import FileStatus

        return FileStatus(inode=hash(path), links=2, is_dir=True)


def host(counts: list[int | None], live: int) -> Host:
    return Host(Moving(counts, live), live=False)


def memory_of(kernel: str) -> int:
    lines = kernel_text("procfs.cgroups", kernel).splitlines()
    return next(int(line.split()[2]) for line in lines if line.startswith("memory"))


@pytest.mark.parametrize("kernel", ["5.10", "6.1-hybrid"])
def test_the_crash_loop_of_each_v1_kernel_left_zombies(kernel, tmp_path):
    tree = recorded(tmp_path, kernel, "5.10-v1" if kernel == "5.10" else "6.1-v1")
    tree.write(f"{TOP}/release_agent")
    row, _ = collect(tree)
    assert row.dying is not None
    assert row.dying > 50
