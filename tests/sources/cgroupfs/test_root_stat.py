"""`cgroup.stat` of the v2 root."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.host import open_host
from sexton.model.rows.cgroup import RootCgroupStat
from sexton.sources.cgroupfs import census
from sexton.sources.cgroupfs.layout import read_layout
from sexton.sources.cgroupfs.root_stat import RootStat, parse
from tests.sources.cgroupfs.trees import Tree, mounts, recorded
from tests.support.fixtures import kernel_text, kernels

TOP = "/sys/fs/cgroup"


@pytest.mark.parametrize(
    ("kernel", "row"),
    [
        ("6.1", RootCgroupStat(15, 62, None)),
        ("6.12", RootCgroupStat(16, 55, 55)),
        ("7.2", RootCgroupStat(16, 6, 6)),
    ],
)
def test_reads_the_root_of_real_kernels(kernel, row):
    assert parse(kernel_text("cgroupfs.root_stat", kernel)) == row


def test_memory_on_v2_is_read_where_its_root_is_mounted(tmp_path):
    tree = v2(tmp_path)
    reading = RootStat(tree.host())
    assert list(reading.collect()) == [RootCgroupStat(15, 62, None)]
    tree.write(f"{TOP}/cgroup.stat", "nr_descendants 15\nnr_dying_descendants 63\n")
    assert list(reading.collect()) == [RootCgroupStat(15, 63, None)]


def test_no_directory_is_listed_and_no_other_file_read_after_the_first_reading(
    tmp_path, monkeypatch
):
    host = v2(tmp_path).host()
    reading = RootStat(host)
    list(reading.collect())
    opened = []
    whole = type(host.files).read

    def read(self, path, *more):
        opened.append(path)
        return whole(self, path, *more)

    monkeypatch.setattr(type(host.files), "read", read)
    monkeypatch.setattr(type(host.files), "names", None)
    list(reading.collect())
    assert opened == [f"{TOP}/cgroup.stat"]


def test_a_hybrid_node_with_memory_on_v1_is_not_counted_by_its_v2_root(tmp_path):
    tree = recorded(tmp_path, "6.1-hybrid", "6.1-v1")
    tree.namespace()
    # As recorded there, beside 65 dying memory cgroups of v1.
    tree.write(f"{TOP}/unified/cgroup.stat", "nr_descendants 15\nnr_dying_descendants 0\n")
    with pytest.raises(SourceAbsent, match="memory is on cgroup v1") as caught:
        list(RootStat(tree.host()).collect())
    assert "/proc/cgroups" in caught.value.detail


def test_a_cgroup_namespace_shows_no_root(tmp_path):
    tree = v2(tmp_path, namespace="cgroup:[4026532999]")
    with pytest.raises(SourceAbsent, match="cgroup namespace"):
        list(RootStat(tree.host()).collect())


def test_a_kernel_before_4_14_has_no_such_file(tmp_path):
    tree = v2(tmp_path)
    (tree.root / "sys/fs/cgroup/cgroup.stat").unlink()
    with pytest.raises(SourceAbsent, match="No such file"):
        list(RootStat(tree.host()).collect())


def test_what_is_broken_is_named_with_its_path(tmp_path):
    tree = v2(tmp_path)
    tree.write(f"{TOP}/cgroup.stat", "nr_descendants 15\nnr_dying_descendants many\n")
    with pytest.raises(SourceMalformed) as caught:
        list(RootStat(tree.host()).collect())
    assert (caught.value.path, caught.value.line) == (f"{TOP}/cgroup.stat", 2)


def test_the_census_of_the_same_tree_says_the_same(tmp_path):
    host = v2(tmp_path).host()
    (row,) = RootStat(host).collect()
    counted, _ = census.take(host, read_layout(host))
    assert (counted.live, counted.dying) == (row.descendants + 1, row.dying)


def test_this_machine_gives_a_row_exactly_where_memory_is_on_v2():
    host = open_host()
    layout = read_layout(host)
    if layout.version == 2 and layout.comparable:
        (row,) = RootStat(host).collect()
        assert row.descendants >= 0
    else:
        with pytest.raises(SourceAbsent, match=r"cgroup v1|root"):
            list(RootStat(host).collect())


@given(junk=st.binary(max_size=60), start=st.integers(0, 700), cut=st.integers(0, 40))
def test_junk_is_a_row_or_malformed_and_never_a_crash(junk, start, cut):
    good = kernels("cgroupfs.root_stat")[1].read_bytes()
    content = good[:start] + junk + good[start + cut :]
    with contextlib.suppress(SourceMalformed):
        assert isinstance(parse(content.decode("utf-8", "surrogateescape")), RootCgroupStat)


def v2(root: Path, namespace: str = "cgroup:[4026531835]") -> Tree:
    tree = Tree(root)
    tree.write("/proc/1/mountinfo", mounts(f"/ {TOP} cgroup2 rw"))
    tree.write("/proc/cgroups", "memory\t0\t78\t1\n")
    tree.write(f"{TOP}/cgroup.controllers", "memory\n")
    tree.write(f"{TOP}/cgroup.stat", kernel_text("cgroupfs.root_stat", "6.1"))
    tree.namespace(namespace)
    return tree
