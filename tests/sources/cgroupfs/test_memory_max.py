"""`memory.max` and its neighbours."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.model.rows.cgroup import CgroupMemory
from sexton.sources.cgroupfs import memory_max
from sexton.sources.cgroupfs.memory_max import Files, Limits, parse
from tests.sources.cgroupfs.trees import Tree, mounts
from tests.support.examples import examples
from tests.support.fixtures import kernel_text

V2 = {
    "memory.max": "41943040\n",
    "memory.current": "4096\n",
    "memory.events": "max 7\noom_kill 2\n",
}


def files(kernel: str) -> dict[str, str]:
    """The files of one cgroup as `head` prints them."""
    parts = re.split(r"==> (\S+) <==\n", kernel_text("cgroupfs.memory_max", kernel))[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_v1_counts_kills_in_oom_control_and_hits_in_failcnt():
    found = files("6.18")
    names = ("limit_in_bytes", "usage_in_bytes", "oom_control", "failcnt")
    row = parse(Files(*(found[f"memory.{name}"] for name in names)), "/a")
    assert row == CgroupMemory("/a", 41943040, 81920, hits=37, killed=1)


def test_v2_counts_both_in_events():
    found = files("6.1")
    row = parse(Files(*(found[f"memory.{name}"] for name in ("max", "current", "events"))), "/a")
    assert row is not None
    assert row.limit_bytes == 41943040
    assert row.hits is not None
    assert row.killed is not None


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n"])
def test_a_cgroup_without_a_limit_gives_no_row(limit):
    assert parse(Files(limit, "1\n", ""), "/a") is None


@pytest.mark.parametrize(
    "broken",
    [Files("x", "1", ""), Files("1", "", ""), Files("1", "1", "max x"), Files("-1", "1", "")],
)
def test_what_is_broken_is_malformed_and_not_zero(broken):
    with pytest.raises(SourceMalformed):
        parse(broken, "/a")


def test_a_kernel_that_does_not_count_kills_says_none():
    row = parse(Files("4096\n", "1\n", "oom_kill_disable 0\nunder_oom 0\n", "3\n"), "/a")
    assert row == CgroupMemory("/a", 4096, 1, hits=3, killed=None)


def tree(tmp_path, **limits: str) -> Tree:
    made = Tree(tmp_path)
    made.write("/proc/1/mountinfo", mounts("/ /sys/fs/cgroup cgroup2 rw"))
    made.write("/sys/fs/cgroup/cgroup.controllers", "memory\n")
    made.write("/sys/fs/cgroup/memory.max", "1\n")  # what the root never has
    for name, limit in limits.items():
        for file, content in {**V2, "memory.max": limit}.items():
            made.write(f"/sys/fs/cgroup/{name}/{file}", content)
    return made


def test_a_cgroup_without_a_limit_is_looked_at_again_in_the_tenth_reading(tmp_path):
    made = tree(tmp_path, free="max\n", tight="8192\n")
    reading = Limits(made.host())
    assert [row.path for row in reading.collect()] == ["/tight"]
    made.write("/sys/fs/cgroup/free/memory.max", "4096\n")
    paths = [[row.path for row in reading.collect()] for _ in range(10)]
    assert paths[:-1] == [["/tight"]] * 9
    assert paths[-1] == ["/free", "/tight"]


def test_a_cgroup_made_anew_under_the_same_name_is_looked_at(tmp_path):
    made = tree(tmp_path, pod="max\n")
    host = made.host()
    reading = Limits(host)
    assert list(reading.collect()) == []
    place = tmp_path / "sys/fs/cgroup/pod"
    place.rename(tmp_path / "removed")  # kept, so that its inode is not used again
    for file, content in {**V2, "memory.max": "8192\n"}.items():
        made.write(f"/sys/fs/cgroup/pod/{file}", content)
    host.memo.clear()  # the census is two seconds old at most
    assert [row.path for row in reading.collect()] == ["/pod"]


def test_reads_only_what_has_a_limit_the_fullest_first(tmp_path):
    host = tree(tmp_path, wide="409600\n", free="max\n", tight="8192\n").host()
    assert [row.path for row in Limits(host).collect()] == ["/tight", "/wide"]


def test_v1_adds_kills_of_cgroups_without_a_limit_to_the_nearest_limit_above(tmp_path):
    made = Tree(tmp_path)
    made.write("/proc/1/mountinfo", mounts("/ /sys/fs/cgroup/memory cgroup rw,memory"))
    none = "9223372036854771712\n"
    for path, limit, killed in (
        ("", none, 0),
        ("pod", "8192\n", 1),
        ("pod/plain", none, 2),
        ("pod/plain/deep", none, 4),
        ("pod/tight", "4096\n", 8),
        ("pod/tight/inner", none, 16),
        ("free", none, 32),
    ):
        for file, content in (
            ("memory.limit_in_bytes", limit),
            ("memory.usage_in_bytes", "4096\n"),
            ("memory.failcnt", "3\n"),
            ("memory.oom_control", f"oom_kill_disable 0\nunder_oom 0\noom_kill {killed}\n"),
        ):
            made.write(f"/sys/fs/cgroup/memory/{path}/{file}", content)
    reading = Limits(made.host())
    expected = {"/pod": 7, "/pod/tight": 24}
    assert {row.path: row.killed for row in reading.collect()} == expected
    assert {row.path: row.killed for row in reading.collect()} == expected


def test_keeps_so_many_rows_and_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr(memory_max, "MOST_ROWS", 1)
    host = tree(tmp_path, wide="409600\n", tight="8192\n").host()
    assert [row.path for row in Limits(host).collect()] == ["/tight"]


def test_without_a_memory_hierarchy_or_its_files_it_is_absent(tmp_path):
    none = Tree(tmp_path / "none")
    none.write("/proc/1/mountinfo", mounts("/ /sys/fs/cgroup/cpu cgroup rw,cpu"))
    bare = Tree(tmp_path / "bare")
    bare.write("/proc/1/mountinfo", mounts("/ /sys/fs/cgroup cgroup2 rw"))
    bare.write("/sys/fs/cgroup/cgroup.controllers", "memory\n")
    bare.make("/sys/fs/cgroup/a")
    for each in (none, bare):
        with pytest.raises(SourceAbsent):
            list(Limits(each.host()).collect())


@settings(max_examples=examples(150))
@given(st.lists(st.text(max_size=40), min_size=4, max_size=4))
def test_junk_is_a_row_or_malformed_and_never_a_crash(parts):
    with contextlib.suppress(SourceMalformed):
        parse(Files(*parts), "/a")
