"""From an OOM kill to the unit that is started again, and to the job that dies of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from sexton.explain.links.cgroups import oom_kill_removes_cgroups, oom_kill_restarts_unit
from sexton.explain.links.jobs import oom_kill_ends_job
from sexton.explain.links.memory import pressure_ends_in_oom_kill
from sexton.model.chain import Strength
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupEvent
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.recorder import Mark
from sexton.model.rows.unit import RestartMark, Unit
from sexton.sources.kmsg.catalogue import recognise
from tests.explain.making import EMPTY, finding, window

CGROUP = "/system.slice/eater.service"
EATER = Unit(
    "eater.service", "loaded", "active", "running", None, 3, "always", 2_000_000, 90_000_000,
    None, None, "success", 0, CGROUP, "systemd",
)  # fmt: skip
OOM = finding("oom_kills", (100.0, 100.0), cgroup=(CGROUP,), unit=("eater.service",))
LOOP = finding("crash_looping_unit", (0.0, 200.0), unit=("other.service", "eater.service"))


def killed(
    at: float,
    pid: int = 7,
    cgroup: str | None = CGROUP,
    comm: str = "python3",
    *,
    home: bool = False,
) -> list[Row]:
    """The lines of one kill, by a cgroup's limit or for the node; `home`: the task was in it."""
    short = f"oom_memcg={cgroup}" if cgroup is not None else "global_oom"
    kind = "Memory cgroup out of memory" if cgroup is not None else "Out of memory"
    lines = (
        f"oom-kill:constraint=X,nodemask=(null),cpuset=/,mems_allowed=0,{short},"
        f"task_memcg={cgroup if home else CGROUP},task={comm},pid={pid},uid=0",
        f"{kind}: Killed process {pid} ({comm}) total-vm:9kB, anon-rss:8kB, file-rss:0kB",
    )
    return [event(line, at) for line in lines]


def event(line: str, at: float) -> KernelEvent:
    known = recognise(line)
    assert known is not None
    pattern = known.pattern
    return KernelEvent(pattern.id, pattern.family, line, int(at * 1e6), at, known.fields)


def seen(kills: Iterable[Row], *units: tuple[float, Unit], marks: Iterable[Row] = ()):
    readings: dict[float, list[Row]] = {0: [], 200: [*kills, *marks]}
    for at, unit in units:
        readings.setdefault(at, []).append(unit)
    return window(dict(sorted(readings.items())))


def started(at: float, restarts: int) -> tuple[float, Unit]:
    return at + 1, replace(EATER, restarts=restarts, main_start_us=int(at * 1e6))


def test_a_start_after_each_kill_is_proof():
    kills = [*killed(100, 7), *killed(120, 8)]
    link = oom_kill_restarts_unit.join(
        OOM, LOOP, seen(kills, started(90, 1), started(103, 2), started(123, 3))
    )
    assert link.strength is Strength.PROVEN
    assert link.shared == ("eater.service",)
    assert not link.against


def test_the_journals_restarts_count_as_starts():
    marks = [RestartMark("eater.service", 1, 103.0)]
    link = oom_kill_restarts_unit.join(OOM, LOOP, seen(killed(100), (5, EATER), marks=marks))
    assert link.strength is Strength.PROVEN


def test_systemds_own_result_is_proof():
    unit = replace(EATER, result="oom-kill", main_start_us=None)
    link = oom_kill_restarts_unit.join(OOM, LOOP, seen(killed(100), (150, unit)))
    assert link.strength is Strength.PROVEN
    assert "oom-kill" in link.sentence


def test_one_kill_among_many_restarts_is_not_what_restarts_it():
    every = [started(10.0 * turn, turn) for turn in range(1, 19)]
    link = oom_kill_restarts_unit.join(OOM, LOOP, seen(killed(100), *every))
    assert link.strength is Strength.LIKELY
    assert link.against == ("17 restarts in this window, 1 kill",)


def test_starts_that_all_came_before_the_kill_are_not_its_effect():
    view = seen(killed(180), started(20, 1), started(60, 2))
    assert oom_kill_restarts_unit.join(OOM, LOOP, view) is None


def test_a_unit_without_dated_starts_is_possible_at_best():
    unit = replace(EATER, main_start_us=None)
    link = oom_kill_restarts_unit.join(OOM, LOOP, seen(killed(100), (150, unit)))
    assert link.strength is Strength.POSSIBLE


def test_another_units_kill_is_nobodys_restart():
    other = finding("crash_looping_unit", unit=("other.service",))
    assert oom_kill_restarts_unit.join(OOM, other, seen(killed(100))) is None
    assert oom_kill_restarts_unit.join(OOM, LOOP, EMPTY) is None


@pytest.mark.parametrize(
    ("died", "job", "expected"),
    [
        (130.0, "job 17 died", Strength.LIKELY),
        (130.0, "job 17: exit code 137", Strength.PROVEN),
        (130.0, "job 17: python3 is gone", Strength.PROVEN),
        (130.0, "the eater job died", Strength.PROVEN),
        (400.0, "job 17: OOMKilled", Strength.POSSIBLE),
        (90.0, "job 17: OOMKilled", None),
        (2_000.0, "job 17 died", None),
    ],
)
def test_a_job_dies_after_the_kill_and_not_before(died, job, expected):
    view = window({0: [], 101: killed(100), died: [Mark(job)]})
    death = finding("job_deaths", (died, died), job=(job,))
    link = oom_kill_ends_job.join(OOM, death, view)
    assert (link.strength if link else None) is expected


def test_a_mark_that_names_a_lost_connection_speaks_against_it():
    job = "job 17: connection reset by peer"
    view = window({101: killed(100), 110: [Mark(job)]})
    link = oom_kill_ends_job.join(OOM, finding("job_deaths", (110, 110), job=(job,)), view)
    assert "names another cause" in link.against[0]


@pytest.mark.parametrize(
    ("at", "cgroup", "expected"),
    [
        (105.0, None, Strength.PROVEN),
        (118.0, None, Strength.PROVEN),
        (90.0, None, None),
        (130.0, None, None),
        (105.0, CGROUP, None),
    ],
)
def test_only_a_kill_for_the_node_ends_the_nodes_pressure(at, cgroup, expected):
    pressure = finding("memory_pressure", (100.0, 110.0))
    view = window({200: killed(at, cgroup=cgroup)})
    link = pressure_ends_in_oom_kill.join(pressure, OOM, view)
    assert (link.strength if link else None) is expected


def gone(*times: float, unit: bool = False) -> list[Row]:
    """Containers that were made, killed and removed at these times; `unit`: a service instead."""
    paths = [CGROUP if unit else f"/docker/{number:064x}" for number in range(len(times))]
    return [
        CgroupEvent(what, number, path, int(at * 1e9))
        for number, (at, path) in enumerate(zip(times, paths, strict=True))
        for what, at in (("mkdir", at - 1), ("rmdir", at))
    ]


CHURN = finding("cgroup_churn", (0.0, 200.0), cgroup=("/docker", "/system.slice"))


@pytest.mark.parametrize(
    ("kills", "strength", "covers"),
    [(4, Strength.PROVEN, None), (2, Strength.PROVEN, (2, 4)), (1, Strength.LIKELY, (1, 4))],
)
def test_a_container_that_is_killed_is_removed(kills, strength, covers):
    lines = [
        line
        for number in range(kills)
        for line in killed(100 + 10 * number, number, f"/docker/{number:064x}", home=True)
    ]
    events = gone(*(101 + 10 * number for number in range(4)))
    link = oom_kill_removes_cgroups.join(OOM, CHURN, seen([*lines, *events], (0, EATER)))
    assert (link.strength, link.covers, link.shared) == (strength, covers, ("/docker",))
    assert bool(link.against) is (strength is Strength.LIKELY)


def test_removed_cgroups_without_a_kill_and_those_of_units_are_no_containers():
    lines = killed(100, 7, "/docker/elsewhere", home=True)
    other = [*lines, *gone(101, 111)]
    assert oom_kill_removes_cgroups.join(OOM, CHURN, seen(other, (0, EATER))) is None
    unit = [*killed(100), *gone(101, 111, unit=True)]
    assert oom_kill_removes_cgroups.join(OOM, CHURN, seen(unit, (0, EATER))) is None
    assert oom_kill_removes_cgroups.join(OOM, CHURN, EMPTY) is None
