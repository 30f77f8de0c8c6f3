"""Real dying memory cgroups, and what each source says of them.

Other people's cgroups come and go on the same node, so node totals are given slack, and what must
be exact is asked of our own subtree: by trace events and by the bytes the dead hold.
"""

from __future__ import annotations

import os
from dataclasses import replace
from time import sleep

import pytest

from sexton.host.host import open_host
from sexton.model.rows.cgroup import CgroupEvent, CgroupEventGap
from sexton.sources.cgroupfs import census
from sexton.sources.cgroupfs.census import Census
from sexton.sources.cgroupfs.residual import Residuals
from sexton.sources.cgroupfs.stat import Stats
from sexton.sources.tracefs.cgroup_events import CgroupEvents, parse
from sexton.sources.tracefs.instance import CgroupTrace
from tests.kernel.conftest import until
from tests.support.zombies import ZombieMaker, zombies

pytestmark = pytest.mark.root
NUMBER = 200
#: Births and deaths of others on the node meanwhile.
SLACK = 80
#: The default of 64 kB a core holds about a thousand events, and everybody's go into it.
ROOMY_KB = 4096


class Deaths:
    """Whatever a trace said of one zombie_maker so far; it must not have lost anything."""

    def __init__(self, trace: CgroupTrace) -> None:
        self._trace = trace
        self._seen: list[CgroupEvent] = []

    def zombies(self, maker: ZombieMaker) -> dict[int, str]:
        """Dead and not released, by id."""
        self._seen += parse(self._trace.read())
        assert self._trace.lost() == 0, "after a gap a missing event proves nothing"
        released = self._ids("release", maker)
        return {one: path for one, path in self._ids("rmdir", maker).items() if one not in released}

    def released(self, name: str, maker: ZombieMaker) -> bool:
        self.zombies(maker)
        return f"{maker.path}/{name}" in self._ids("release", maker).values()

    def _ids(self, kind: str, maker: ZombieMaker) -> dict[int, str]:
        return {
            row.cgroup_id: row.path
            for row in self._seen
            if row.kind == kind and row.path.startswith(f"{maker.path}/")
        }


@pytest.mark.parametrize("pin", ["tmpfs", "page cache"])
def test_zombies_are_counted_named_and_measured_until_they_are_freed(pin, tracefs):
    host = open_host()
    with CgroupTrace(host, buffer_kb=ROOMY_KB) as trace, zombies(NUMBER, pin) as maker:
        deaths = Deaths(trace)
        (maker.parent / "ordinary").mkdir()
        (maker.parent / "ordinary").rmdir()
        # Once an ordinary one, which died last, is at rest, the others had their time.
        assert until(lambda: deaths.released("ordinary", maker))
        dead = deaths.zombies(maker)
        assert sorted(dead.values()) == sorted(f"{maker.path}/z{n}" for n in range(NUMBER))
        # Waited for: on a loaded node an estimate may send us to the coarser counters once.
        assert until(lambda: residual(host, maker) >= NUMBER * 4096)
        if maker.layout.version == 2:
            stats = {row.path: row.dying for row in Stats(host).collect()}
            assert stats[maker.path] == NUMBER

        def at_rest() -> bool:
            # One round leaves a few page-cache zombies behind now and then; the next takes them.
            maker.free()
            return not deaths.zombies(maker)

        assert until(at_rest)
        assert until(lambda: residual(host, maker) == 0)


@pytest.mark.alone
def test_the_node_census_moves_by_about_as_many_and_back():
    host = open_host()
    if node_dying(host) is None:
        pytest.skip("the node cannot be counted from this cgroup namespace")
    before = steady_dying(host)
    with zombies(NUMBER) as maker:
        assert abs(steady_dying(host) - before - NUMBER) < SLACK
        maker.free()
        assert until(lambda: abs(node_dying(host) - before) < SLACK)


def steady_dying(host) -> int:
    """The node's count once it has not moved for half a second: the kernel may still be releasing
    what others left."""
    seen = [node_dying(host)]

    def is_steady() -> bool:
        sleep(0.5)
        seen.append(node_dying(host))
        return seen[-1] == seen[-2]

    assert until(is_steady), seen
    return seen[-1]


def test_growth_shows_between_two_readings(tracefs):
    host = open_host()
    with CgroupTrace(host, buffer_kb=ROOMY_KB) as trace, zombies(20) as maker:
        deaths = Deaths(trace)
        assert until(lambda: residual(host, maker) >= 20 * 4096)
        assert residual(host, maker) < 50 * 4096
        maker.make(30)
        assert until(lambda: len(deaths.zombies(maker)) == 50)
        assert until(lambda: residual(host, maker) >= 50 * 4096)


def test_the_source_reports_deaths_or_a_gap(tracefs):
    source = CgroupEvents(open_host())
    try:
        list(source.collect())
        with zombies(5) as maker:
            rows = list(source.collect())
        lost = sum(row.lost for row in rows if isinstance(row, CgroupEventGap))
        dead = [row for row in rows if isinstance(row, CgroupEvent) and row.kind == "rmdir"]
        assert lost or sum(row.path.startswith(f"{maker.path}/z") for row in dead) == 5
    finally:
        source.close()
    assert not [name for name in os.listdir(f"{tracefs}/instances") if f"-{os.getpid()}-" in name]


def node_dying(host) -> int | None:
    """`None` where this is a namespace: then only the subtree is checked."""
    row = next(iter(Census(host).collect()))
    assert isinstance(row, census.CgroupCensus)
    return row.dying if row.scope == "node" else None


def residual(host, maker: ZombieMaker) -> int:
    rows = Residuals(replace(host, thorough=True, memo={})).collect()
    return sum(row.bytes for row in rows if row.path == maker.path)
