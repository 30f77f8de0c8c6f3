"""Live cgroup directories of the running kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sexton.host.host import open_host
from sexton.host.reader import walk
from sexton.model.rows.cgroup import CgroupDir
from sexton.model.text import printable
from sexton.sources.cgroupfs.census import Census, take, walk_directories
from sexton.sources.cgroupfs.layout import read_layout
from tests.support.zombies import scratch_cgroup

pytestmark = pytest.mark.root


@pytest.mark.oracle
def test_counts_what_find_counts():
    with scratch_cgroup() as (_, top):
        for number in range(30):
            (top / f"parent{number}").mkdir()
            for inner in range(number % 7):
                (top / f"parent{number}/leaf{inner}").mkdir()
        printed = subprocess.run(["find", str(top), "-type", "d"], capture_output=True, check=True)
        walked = walk_directories(open_host(), str(top))
        assert walked.count == printed.stdout.count(b"\n") > 100
        rooted = walk_directories(open_host("/sys"), str(top).removeprefix("/sys"))
        assert sorted(rooted.kept) == sorted(walked.kept)


def test_the_inode_is_what_the_directory_says():
    with scratch_cgroup() as (_, top):
        (top / "a").mkdir()
        found = {one.path: one.inode for one in walk(open_host().files, str(top))}
        assert found["/a"] == (top / "a").stat().st_ino


def test_a_hostile_name_is_kept_raw_and_printed_escaped():
    name = b"x\x1b[2J\xff <script>"
    with scratch_cgroup() as (_, top):
        os.mkdir(os.fsencode(top) + b"/" + name)
        rows = [row for row in Census(open_host()).collect() if isinstance(row, CgroupDir)]
        (found,) = [row for row in rows if row.path.startswith(f"/{top.name}/")]
        assert os.fsencode(found.path).endswith(name)
        assert printable(found.path).endswith(r"/x\x1b[2J\xff <script>")


def test_a_cgroup_that_vanishes_during_the_walk_is_left_out():
    with scratch_cgroup() as (_, top):
        for number in range(20):
            (top / f"p{number}/inner").mkdir(parents=True)
        walking = walk(open_host().files, str(top))
        seen = [next(walking).path for _ in range(3)]
        for number in range(20):
            if not any(path.startswith(f"/p{number}") for path in seen):
                (top / f"p{number}/inner").rmdir()
                (top / f"p{number}").rmdir()
        left = [one.path for one in walking]
        assert len(left) < 10


def test_churn_neither_breaks_the_census_nor_makes_it_negative():
    host = open_host()
    with scratch_cgroup() as (layout, top):
        stop = threading.Event()

        def churn() -> None:
            while not stop.is_set():
                for number in range(20):
                    (top / f"c{number}").mkdir()
                for number in range(20):
                    (top / f"c{number}").rmdir()

        thread = threading.Thread(target=churn)
        thread.start()
        try:
            rows = [take(host, layout)[0] for _ in range(40)]
        finally:
            stop.set()
            thread.join()
    assert all(row.dying is None or row.dying >= 0 for row in rows)
    assert all(row.live is not None and row.live > 1 for row in rows)


POD = """
import dataclasses, json, sys
from sexton.model.rows.cgroup import CgroupCensus
from sexton.sources.cgroupfs.census import Census
from sexton.host.host import open_host
rows = list(Census(open_host()).collect())
print(json.dumps([dataclasses.asdict(rows[0]), len(rows) - 1]))
"""


@pytest.mark.parametrize("where", ["outside", "inside"])
def test_a_pod_with_300_live_cgroups_around_it_never_shows_a_zombie(where):
    with scratch_cgroup() as (layout, top):
        pod = top / "pod"
        pod.mkdir()
        crowd = pod if where == "inside" else top
        for number in range(300):
            (crowd / f"live{number}").mkdir()
        (pod / "init").mkdir()
        row, directories = census_in_namespace(pod, str(layout.mount_point), layout.version)
        expected = 302 if where == "inside" else 2
        assert directories == row["live"] == expected
        assert row["scope"] == "subtree"
        if layout.version == 1:
            assert (row["total"], row["dying"]) == (None, None)
            assert "node-wide against" in row["reason"]
        else:
            assert row["dying"] == 0
        assert "run with the host's cgroup namespace" in row["reason"]


def test_a_pod_with_the_hosts_cgroups_mounted_counts_the_node():
    """As every pod on v2: in a cgroup namespace of its own, which starts at its own cgroup, and
    with the host's /sys/fs/cgroup, whose root then reads `/../..`."""
    with scratch_cgroup() as (layout, top):
        pod = top / "pod"
        (pod / "init").mkdir(parents=True)
        inside = pod if layout.version == 1 else pod / "init"
        script = f"echo $$ > '{inside}/cgroup.procs' && exec unshare -C \"$@\""
        done = subprocess.run(
            ["sh", "-c", script, "sh", sys.executable, "-c", POD],
            capture_output=True, check=True, timeout=60,
        )  # fmt: skip
    row, directories = json.loads(done.stdout)
    assert row["scope"] == "node"
    assert row["reason"] is None
    assert row["live"] is not None
    assert row["dying"] is not None
    assert directories > 2


def census_in_namespace(pod: Path, mount_point: str, version: int | None) -> tuple[dict, int]:
    """The census of a process whose cgroup namespace starts at `pod`, with mounts of its own."""
    fresh = "-t cgroup -o memory" if version == 1 else "-t cgroup2"
    inside = pod if version == 1 else pod / "init"  # v2 takes processes only in leaves
    script = (
        f"echo $$ > '{pod}/cgroup.procs' && exec unshare -C -m sh -c '"
        f"umount -l {mount_point} && mount {fresh} none {mount_point} && "
        f'exec "$1" -c "$2"\' sh "$0" "$1"'
    )
    done = subprocess.run(
        ["sh", "-c", script, sys.executable, POD], capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, (inside, done.stderr)
    row, directories = json.loads(done.stdout)
    return row, directories


def test_this_machine_is_read_as_it_is():
    layout = read_layout(open_host())
    assert layout.version in (1, 2)
    assert layout.mount_point is not None
    assert layout.comparable or layout.reason
