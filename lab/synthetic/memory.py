"""Tables about memory and cgroups: VmCounter, Pressure, Controller, the census, cgroup events."""

from __future__ import annotations

from math import floor

import numpy as np

from lab.synthetic.columns import Counters, ReadTimes, SegmentTables
from lab.synthetic.names import CONTROLLERS, VM_RATES, VM_STILL, VMSTAT, services
from lab.synthetic.plan import PERIOD_S, UNIT, Array, Plan, Schedule, Ticks, overlap
from sexton.model.rows.cgroup import (
    CgroupCensus,
    CgroupDir,
    CgroupEvent,
    CgroupEventGap,
    CgroupResidual,
    Controller,
    Mount,
    WalkCost,
)
from sexton.model.rows.memory import Pressure, VmCounter

MOUNT = "/sys/fs/cgroup/memory"
#: Ordinary zombies held by page cache, and a large number left by a past workload.
_FEW = 30
_HEAP = 68_440
#: Duration of a run of the looping unit, and the mean interval of ordinary container churn.
RUN_S = 0.2
_CHURN_S = 75.0
_RELEASE_S = 0.03
_HOUR_S = 3600
_LINES = (("cpu", "some"), ("io", "some"), ("io", "full"), ("memory", "some"), ("memory", "full"))


def restarts(mono_s: float) -> int:
    """Restarts of the looping unit since boot."""
    return max(0, floor(mono_s / PERIOD_S))


def last_start_s(mono_s: float) -> float:
    """Start of its last run."""
    return restarts(mono_s) * PERIOD_S


def dying(plan: Plan, ticks: Ticks) -> Array:
    """Number of dying memory cgroups at each tick."""
    few = _FEW + (ticks.elapsed // 600).astype(np.int64) % 7
    if "crash_loop" in plan.plant:
        return np.asarray(few + np.floor((ticks.mono - RUN_S) / PERIOD_S).astype(np.int64))
    return np.asarray(few + (_HEAP if plan.many_zombies and ticks.boot == 0 else 0))


class Memory:
    """The machine's memory and all memory cgroups, live or dying."""

    def __init__(self, schedule: Schedule, rng: np.random.Generator) -> None:
        plan = schedule.plan
        self._schedule, self._rng = schedule, rng
        self._vm = Counters(len(VMSTAT))
        self._gauges = rng.lognormal(11, 2.5, len(VMSTAT)).astype(np.int64)
        self._idle = np.where(rng.random(len(VMSTAT)) < 0.4, rng.integers(1, 9999, len(VMSTAT)), 0)
        self._pressure = Counters(len(_LINES))
        self._averages = np.zeros((3, len(_LINES)))
        self._paths = _paths(plan.cgroups, rng)
        self._inodes = np.arange(plan.cgroups, dtype=np.int64) + 40
        self._next_id = 90_000
        self._loops = "crash_loop" in plan.plant
        self._next_churn = 0.0
        self._hourly_at = -1e9
        self._replacements: dict[str, tuple[str, int]] = {}
        self._waiting: list[tuple[float, CgroupEvent]] = []

    def reset(self) -> None:
        self._vm.reset()
        self._pressure.reset()
        self._waiting, self._replacements = [], {}
        self._next_churn = 0.0
        self._hourly_at = -1e9

    def write(self, segment: SegmentTables) -> None:
        self._vmstat(segment)
        self._pressures(segment)
        self._controllers(segment)
        self._cgroups(segment)
        if segment.ticks.elapsed[0] - self._hourly_at >= _HOUR_S:
            self._hourly_at = float(segment.ticks.elapsed[0])
            self._hourly(segment)
        segment.once(Mount, _mounts())

    @property
    def paths(self) -> list[str]:
        """Cgroups that processes may be in."""
        return [path for path in self._paths if path.count("/") > 1]

    def _vmstat(self, segment: SegmentTables) -> None:
        rng, dt = self._rng, segment.ticks.dt
        shape = (len(VMSTAT), len(dt))
        rates = np.array([VM_RATES.get(name, 0.0) for name in VMSTAT])
        flow = rates[:, None] * rng.gamma(3.0, 1 / 3.0, shape) * dt
        values = self._vm.add("value", rng.poisson(flow)) + self._idle[:, None]
        gauge = np.array([_is_gauge(name) for name in VMSTAT])
        size = np.maximum(self._gauges[gauge], 4)[:, None] * 2e-4
        walk = np.rint(rng.normal(0, 1, (int(gauge.sum()), len(dt))) * size).astype(np.int64)
        wandering = np.abs(self._gauges[gauge][:, None] + np.cumsum(walk, axis=1))
        values[gauge] = wandering
        self._gauges[gauge] = wandering[:, -1]
        segment.same_entities(
            VmCounter, segment.next_read_times(), {"name": VMSTAT, "value": values}
        )

    def _pressures(self, segment: SegmentTables) -> None:
        rng, ticks = self._rng, segment.ticks
        base = np.array([9000.0, 800.0, 500.0, 40.0, 20.0])[:, None]
        steps = rng.poisson(base * rng.gamma(0.5, 2.0, (5, len(ticks.dt))) * ticks.dt)
        for hold in self._schedule.holds:
            steps[0] += (2e5 * overlap(hold.start, hold.end, ticks)).astype(np.int64)
        share = np.minimum(steps / ticks.dt / 1e4, 100.0)
        averages = np.zeros((3, *share.shape))
        for row, span in enumerate((10, 60, 300)):
            kept = np.exp(-1 / span)
            for tick in range(share.shape[1]):
                self._averages[row] = kept * self._averages[row] + (1 - kept) * share[:, tick]
                averages[row, :, tick] = self._averages[row]
        averages = np.round(averages, 2)
        columns = {
            "resource": [resource for resource, _ in _LINES],
            "kind": [kind for _, kind in _LINES],
            "avg10_percent": averages[0],
            "avg60_percent": averages[1],
            "avg300_percent": averages[2],
            "total_us": self._pressure.add("total", steps),
        }
        segment.same_entities(Pressure, segment.next_read_times(), columns)

    def _controllers(self, segment: SegmentTables) -> None:
        plan, n = self._schedule.plan, len(segment.ticks.dt)
        numbers = np.full((len(CONTROLLERS), n), plan.cgroups // 3, dtype=np.int64)
        numbers[CONTROLLERS.index("memory")] = plan.cgroups + dying(
            self._schedule.plan, segment.ticks
        )
        columns = {
            "name": list(CONTROLLERS),
            "hierarchy": np.arange(len(CONTROLLERS)) + 2,
            "cgroups": numbers,
            "enabled": np.ones(len(CONTROLLERS), dtype=bool),
        }
        segment.same_entities(Controller, segment.next_read_times(), columns)

    def _cgroups(self, segment: SegmentTables) -> None:
        ticks = segment.ticks
        events = self._events(ticks)
        when, dead = segment.next_read_times(ticks.scans), dying(self._schedule.plan, ticks)
        live = self._schedule.plan.cgroups
        census, paths, inodes = [], [], []
        done = 0
        rows: list[list[CgroupEvent]] = []
        for tick, moment in enumerate(ticks.mono):
            now = [event for at, event in events[done:] if at <= moment]
            done += len(now)
            for event in now:
                self._move(event)
            rows.append(now)
            if tick in ticks.scans:
                total = live + int(dead[tick])
                census.append([_census(total, live)])
                paths += self._paths
                inodes.append(self._inodes.copy())
        self._waiting = events[done:]
        if census:
            self._directories(segment, when, paths, inodes)
            segment.rows(CgroupCensus, when, census)
        traced = segment.next_read_times()
        segment.rows(CgroupEvent, traced, rows)
        segment.rows(CgroupEventGap, traced, [[] for _ in rows])

    def _directories(
        self, segment: SegmentTables, when: ReadTimes, paths: list[str], inodes: list[Array]
    ) -> None:
        sizes = np.full(len(inodes), len(self._paths))
        children: dict[str, int] = {}
        for path in self._paths:
            if path != "/":
                parent = path.rpartition("/")[0] or "/"
                children[parent] = children.get(parent, 0) + 1
        columns = {
            "path": paths,
            "inode": np.concatenate(inodes),
            "children": np.array([children.get(path, 0) for path in paths]),
        }
        segment.varying_entities(CgroupDir, when, sizes, columns)

    def _events(self, ticks: Ticks) -> list[tuple[float, CgroupEvent]]:
        """mkdir, rmdir and release events up to the segment's end, including pending ones."""
        rng = self._rng
        begin, end = float(ticks.mono[0] - min(ticks.dt[0], 1.0)), float(ticks.mono[-1])
        made = self._waiting
        if self._loops:
            for number in range(restarts(begin) + 1, restarts(end) + 1):
                at, path = number * PERIOD_S, f"/system.slice/{UNIT}"
                made.append(self._event("mkdir", path, at))
                made.append(self._event("rmdir", path, at + RUN_S, same=True))
        self._next_churn = max(self._next_churn, begin)
        while (at := self._next_churn + float(rng.exponential(_CHURN_S))) <= end:
            self._next_churn = at
            slot = int(rng.integers(len(self._paths) // 2, len(self._paths)))
            if self._paths[slot] in self._replacements:
                continue
            old, identity = self._paths[slot], int(self._inodes[slot])
            new = f"{old.rpartition('/')[0]}/{rng.bytes(16).hex()}"
            made.append(self._event("mkdir", new, at - 0.001))
            self._replacements[old] = (new, self._next_id)
            made.append((at, CgroupEvent("rmdir", identity, old, int(at * 1e9))))
            over = at + _RELEASE_S
            made.append((over, CgroupEvent("release", identity, old, int(over * 1e9))))
        return sorted(made, key=lambda part: part[0])

    def _event(
        self, kind: str, path: str, at: float, *, same: bool = False
    ) -> tuple[float, CgroupEvent]:
        self._next_id += not same
        return at, CgroupEvent(kind, self._next_id, path, int(at * 1e9))

    def _move(self, event: CgroupEvent) -> None:
        """Replace a removed container by its successor."""
        if event.kind == "rmdir" and event.path in self._replacements:
            slot = self._paths.index(event.path)
            self._paths[slot], self._inodes[slot] = self._replacements.pop(event.path)

    def _hourly(self, segment: SegmentTables) -> None:
        plan = self._schedule.plan
        total = plan.cgroups + int(dying(self._schedule.plan, segment.ticks)[0])
        slow = "zombie_walk" in plan.plant
        cost_each = 0.97 * plan.walk_s / _HEAP if slow else 4e-8
        estimate = cost_each * total
        if estimate > 0.2:
            note = f"would stall a core for about {estimate:.1f} s; not caused"
        else:
            note = f"an estimated {1000 * estimate:.1f} ms, too fast to matter"
        note = f"memory.numa_stat at the root: {note}"
        walk = WalkCost("memory.numa_stat", "/user.slice", 40, 40 * cost_each, estimate, None, note)
        segment.once(WalkCost, [walk])
        dead = int(dying(self._schedule.plan, segment.ticks)[0])
        held = [CgroupResidual("/system.slice", 4096 * dead, "total_cache - cache - children")]
        segment.once(CgroupResidual, held if dead > 1000 else [])


def _is_gauge(name: str) -> bool:
    counts = name in VM_RATES or name in VM_STILL
    return (name.startswith("nr_") or name == "workingset_nodes") and not counts


def _census(total: int, live: int) -> CgroupCensus:
    how = "/proc/cgroups minus directories"
    return CgroupCensus("v1", 1, MOUNT, "node", total, live, total - live, how, None)


def _paths(number: int, rng: np.random.Generator) -> list[str]:
    """A sixth services, then pods up to half of all, then their containers."""
    paths = ["/", "/system.slice", "/user.slice", "/kubepods", "/kubepods/burstable"]
    paths += [f"/system.slice/{name}" for name in services(number // 6)]
    while len(paths) < number // 2:
        paths.append(f"/kubepods/burstable/pod{rng.bytes(8).hex()}")
    pods = [path for path in paths if "/pod" in path]
    while len(paths) < number:
        paths.append(f"{pods[len(paths) % len(pods)]}/{rng.bytes(16).hex()}")
    return paths


def _mounts() -> list[Mount]:
    options = ("rw", "memory")
    return [
        Mount(24, "/", "/proc", "proc", "proc", ("rw",)),
        Mount(31, "/", "/sys/fs/cgroup/unified", "cgroup2", "cgroup2", ("rw", "nsdelegate")),
        Mount(36, "/", MOUNT, "cgroup", "cgroup", options),
    ]
