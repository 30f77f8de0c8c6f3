"""Bytes that dead children hold."""

from __future__ import annotations

import dataclasses

import pytest

from sexton.errors import SourceAbsent, SourceMalformed, SourceSkipped
from sexton.host.host import Host, open_host
from sexton.model.rows.cgroup import CgroupResidual
from sexton.record.sampler import Sampler
from sexton.sources.cgroupfs import census, residual
from sexton.sources.cgroupfs.residual import EXACT, V1_BOUND, V2_BOUND, V2_EMPTY, Residuals, parse
from sexton.sources.registry import sources_of
from tests.sources.cgroupfs.trees import Tree, mounts
from tests.support.fixtures import kernel_text

TOP1 = "/sys/fs/cgroup/memory"
TOP2 = "/sys/fs/cgroup"


def thorough(tree) -> Host:
    """The host as `sexton zombies` opens it: who left them is the question."""
    return open_host(str(tree.root), thorough=True)


@pytest.mark.parametrize(
    ("kernel", "local", "hierarchical"),
    [("5.10", 0, 18923520 + 3784704), ("6.1", 0, 21254144 + 6475776), ("6.18", 0, 0)],
)
def test_reads_both_numbers_of_real_kernels(kernel, local, hierarchical):
    usage = parse(kernel_text("cgroupfs.memory_stat", kernel), "/system.slice")
    assert (usage.local, usage.hierarchical) == (local, hierarchical)


def test_v2_has_no_local_numbers_and_is_not_taken_for_v1():
    with pytest.raises(SourceMalformed, match="no cache"):
        parse("anon 4096\nfile 8192\n", "/a")


def test_v1_dead_children_hold_what_nobody_else_accounts_for(tmp_path):
    tree = v1(tmp_path)
    put1(tree, "", local=0, total=5 << 20)
    put1(tree, "/slice", local=1 << 20, total=4 << 20)
    put1(tree, "/slice/live", local=2 << 20, total=2 << 20)
    put1(tree, "/other", local=1 << 20, total=1 << 20)
    rows = {row.path: row.bytes for row in Residuals(thorough(tree)).collect()}
    assert rows == {"/slice": 1 << 20}


def test_a_parent_whose_children_are_all_dead_is_seen(tmp_path):
    tree = v1(tmp_path)
    put1(tree, "", local=0, total=8192)
    put1(tree, "/docker", local=0, total=8192)
    (row,) = Residuals(thorough(tree)).collect()
    assert (row.path, row.bytes, row.method) == ("/docker", 8192, EXACT)


def test_where_memory_stat_may_walk_the_plain_counters_give_an_upper_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(residual, "MOST_READ_S", 0.0)
    tree = v1(tmp_path)
    put1(tree, "", local=0, total=9 << 20)
    put1(tree, "/slice", local=1 << 20, total=4 << 20)
    put1(tree, "/slice/live", local=2 << 20, total=2 << 20)
    rows = [(row.path, row.bytes, row.method) for row in Residuals(thorough(tree)).collect()]
    assert rows == [("/slice", 2 << 20, V1_BOUND)]


def test_where_nothing_can_be_timed_safely_memory_stat_is_not_read(tmp_path, monkeypatch):
    def unsafe(*_: object) -> None:
        raise SourceSkipped("memory.stat", "every leaf may hide too many")

    monkeypatch.setattr(residual, "estimates", unsafe)
    tree = v1(tmp_path)
    put1(tree, "", local=0, total=9 << 20)
    put1(tree, "/docker", local=0, total=8192)
    (tmp_path / f"{TOP1}/docker/memory.stat".lstrip("/")).unlink()  # a read of it gives no row
    rows = [(row.path, row.bytes, row.method) for row in Residuals(thorough(tree)).collect()]
    assert rows == [("/docker", 8192, V1_BOUND)]


def test_in_an_archive_the_price_is_paid_and_nothing_is_timed(tmp_path, monkeypatch):
    monkeypatch.setattr(residual, "estimates", lambda *_: 1 / 0)
    tree = v1(tmp_path)
    put1(tree, "", local=0, total=8192)
    put1(tree, "/docker", local=0, total=8192)
    taken = dataclasses.replace(thorough(tree), moment=(1.0, 2.0))
    (row,) = Residuals(taken).collect()
    assert row.method == EXACT


def test_it_is_read_first_and_at_the_windows_end(tmp_path):
    tree = v1(tmp_path)
    put1(tree, "", local=0, total=8192)
    put1(tree, "/docker", local=0, total=8192)
    with Sampler(thorough(tree), sources_of(CgroupResidual)) as sampler:
        batches = sampler.run(0.2).batches(CgroupResidual)
    assert [len(batch.rows) for batch in batches] == [1, 1]


def test_without_hierarchy_a_parent_counts_only_itself(tmp_path):
    tree = v1(tmp_path)
    put1(tree, "", local=0, total=0)
    put1(tree, "/a", local=0, total=1 << 20)
    tree.write(f"{TOP1}/memory.use_hierarchy", "0\n")
    tree.write(f"{TOP1}/a/memory.use_hierarchy", "0\n")
    assert list(Residuals(thorough(tree)).collect()) == []


def test_v2_asks_only_where_something_is_dying(tmp_path):
    tree = v2(tmp_path)
    put2(tree, "/quiet", current=9 << 20, dying=0)
    put2(tree, "/slice", current=5 << 20, dying=3)
    put2(tree, "/slice/live", current=4 << 20, dying=0, procs="7\n")
    put2(tree, "/busy", current=1 << 20, dying=1, procs="8\n")
    rows = {row.path: (row.bytes, row.method) for row in Residuals(thorough(tree)).collect()}
    assert rows == {"/slice": (1 << 20, V2_EMPTY), "/busy": (1 << 20, V2_BOUND)}


def test_v2_children_without_the_controller_leave_nothing_to_subtract(tmp_path):
    tree = v2(tmp_path)
    put2(tree, "/slice", current=5 << 20, dying=3)
    tree.write(f"{TOP2}/slice/bare/cgroup.stat", "nr_descendants 0\nnr_dying_descendants 0\n")
    assert list(Residuals(thorough(tree)).collect()) == []


def test_too_many_directories_are_skipped_and_not_half_added(tmp_path, monkeypatch):
    monkeypatch.setattr(census, "MOST_DIRECTORIES", 1)
    tree = v1(tmp_path)
    put1(tree, "", local=0, total=0)
    put1(tree, "/a", local=0, total=0)
    with pytest.raises(SourceSkipped):
        list(Residuals(thorough(tree)).collect())


def test_without_a_hierarchy_it_is_absent(tmp_path):
    tree = Tree(tmp_path)
    tree.write("/proc/1/mountinfo", "")
    with pytest.raises(SourceAbsent):
        list(Residuals(thorough(tree)).collect())


def v1(root) -> Tree:
    tree = Tree(root)
    tree.write("/proc/1/mountinfo", mounts(f"/ {TOP1} cgroup rw,memory"))
    tree.write("/proc/cgroups", "memory\t4\t9\t1\n")
    tree.write(f"{TOP1}/release_agent")
    return tree


def put1(tree: Tree, path: str, local: int, total: int) -> None:
    content = f"cache {local}\nrss 0\nshmem 0\ntotal_cache {total}\ntotal_rss 0\n"
    tree.write(f"{TOP1}{path}/memory.stat", content)
    tree.write(f"{TOP1}{path}/memory.usage_in_bytes", f"{total + 4096}\n")
    tree.write(f"{TOP1}{path}/memory.kmem.usage_in_bytes", "4096\n")
    tree.write(f"{TOP1}{path}/memory.use_hierarchy", "1\n")
    tree.write(f"{TOP1}{path}/cgroup.procs", "7\n" if local == total else "")


def v2(root) -> Tree:
    tree = Tree(root)
    tree.write("/proc/1/mountinfo", mounts(f"/ {TOP2} cgroup2 rw"))
    tree.write("/proc/cgroups", "memory\t0\t9\t1\n")
    tree.write(f"{TOP2}/cgroup.controllers", "memory\n")
    tree.write(f"{TOP2}/cgroup.stat", "nr_descendants 3\nnr_dying_descendants 4\n")
    return tree


def put2(tree: Tree, path: str, current: int, dying: int, procs: str = "") -> None:
    tree.write(f"{TOP2}{path}/memory.current", f"{current}\n")
    stat = f"nr_descendants 0\nnr_dying_descendants {dying}\n"
    tree.write(f"{TOP2}{path}/cgroup.stat", stat)
    tree.write(f"{TOP2}{path}/cgroup.procs", procs)


def test_with_few_dying_a_mere_diagnosis_reads_no_directory(tmp_path):
    tree = v1(tmp_path)
    put1(tree, "", local=0, total=9 << 20)
    put1(tree, "/slice", local=1 << 20, total=4 << 20)
    assert list(Residuals(tree.host()).collect()) == []
    assert list(Residuals(thorough(tree)).collect())
