"""The private tracing instance, on the running kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from sexton.host.host import open_host
from sexton.sources.tracefs.cgroup_events import parse
from sexton.sources.tracefs.instance import CgroupTrace, remove_stale
from tests.kernel.conftest import until
from tests.support.zombies import scratch_cgroup

pytestmark = pytest.mark.root
HOLDER = """
import signal
from sexton.host.host import open_host
from sexton.sources.tracefs.instance import CgroupTrace
print(CgroupTrace(open_host()).path, flush=True)
signal.pause()
"""


def test_takes_its_instance_away_with_it(tracefs):
    with CgroupTrace(open_host()) as trace:
        name = os.path.basename(trace.path)
        assert name in os.listdir(f"{tracefs}/instances")
        with open(f"{trace.path}/trace_clock") as clock:
            assert "[mono]" in clock.read()
    assert name not in os.listdir(f"{tracefs}/instances")


def test_two_in_one_process_see_the_same_and_do_not_take_from_each_other(tracefs):
    with CgroupTrace(open_host(), 4096) as one, CgroupTrace(open_host(), 4096) as other:
        with scratch_cgroup() as (_, top):
            pass
        for trace in (one, other):
            kinds = [row.kind for row in parse(trace.read()) if row.path == f"/{top.name}"]
            assert kinds[:2] == ["mkdir", "rmdir"]


def test_hostile_names_come_through_whole(tracefs):
    name = b"x y\x1b[2J\xff\x0b\xc2\x85 9.000000: cgroup_rmdir: root=4 id=5 level=1 path="
    with CgroupTrace(open_host(), buffer_kb=4096) as trace:
        with scratch_cgroup() as (_, top):
            os.mkdir(os.fsencode(top) + b"/" + name)
        expected = f"/{top.name}/".encode() + name
        seen = [row for row in parse(trace.read()) if os.fsencode(row.path) == expected]
    assert [row.kind for row in seen][:2] == ["mkdir", "rmdir"]
    assert len({row.cgroup_id for row in seen}) == 1


def test_only_the_memory_hierarchy_is_followed(tracefs):
    with CgroupTrace(open_host()) as trace, scratch_cgroup():
        lines = trace.read().split("\n")
    events = [line for line in lines if ": cgroup_" in line]
    assert events
    assert all(f" root={trace.root} " in line for line in events)


def test_what_the_buffer_loses_is_counted(tracefs):
    with CgroupTrace(open_host(), buffer_kb=4) as trace:
        with scratch_cgroup() as (_, top):
            for number in range(400):
                (top / f"{number}-{'x' * 100}").mkdir()
        assert until(lambda: trace.lost() > 0)
        trace.read()
        assert trace.lost() >= 0


def test_a_loss_is_seen_by_how_much_was_read(tracefs):
    with CgroupTrace(open_host(), buffer_kb=4) as trace:
        with scratch_cgroup() as (_, top):
            for number in range(400):
                (top / f"{number}-{'x' * 100}").mkdir()
        assert trace.lost(trace.read()) > 0


def test_losses_are_not_read_after_only_a_few_events(tracefs, monkeypatch):
    with CgroupTrace(open_host()) as trace, scratch_cgroup():
        content = trace.read()
        monkeypatch.setattr(trace, "stats", lambda: pytest.fail("asked"))
        assert ": cgroup_mkdir: " in content
        assert trace.lost(content) == 0


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_holds_is_not(tracefs):
    host = open_host()
    instances = f"{tracefs}/instances"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        name = os.path.basename(holder.stdout.readline().strip())
        remove_stale(host, instances)
        assert name in os.listdir(instances)
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    assert name in os.listdir(instances)
    remove_stale(host, instances)
    assert name not in os.listdir(instances)
