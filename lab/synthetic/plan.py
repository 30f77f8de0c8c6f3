"""The plan of a synthetic recording: the node, the duration, and what is planted when.

All events are planned before any row is written, in *elapsed* seconds since the start of the
recording, independent of the node's clocks. `Schedule` converts them to both clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

import numpy as np

SEGMENT_S = 120
CAUSES = ("crash_loop", "zombie_walk", "nic_reset")
TWINS = ("busy_user", "flood", "zombies_without_starvation", "reset_without_zombies")
UNIT = "ecs.service"
PERIOD_S = 10.2
#: ENA resets the device after a queue was stalled this long.
RESET_AFTER_S = 5.0
#: How long a reset takes the device down.
DOWN_S = 0.9
#: How long the recorder samples faster after an alarm; a similar alarm within `CALM_S` continues
#: it.
DETAIL_S = 60
CALM_S = 600.0
_FLOOD_S = 20.0
_OUTAGE_S = 95
_BOOT_S = 35.0

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """A node and its hours. `plant` names causes and twins; without any the node is healthy.

    `walks` is how often the walk and the reset occur (twice a day if `None`), `walks_at` when, in
    seconds from the start. `gaps` are (start, seconds) without a recorder, `reboot_at` a reboot,
    `jumps` (moment, hours) of the wall clock. `hours` includes the gaps. With `stack_hertz` every
    core is sampled at that rate, from a tree of about `stack_nodes` functions.
    """

    cores: int = 96
    hours: float = 12.0
    seed: int = 1
    processes: int = 1000
    cgroups: int = 1000
    nics: int = 1
    queues: int = 32
    units: int = 200
    start: float = 1_740_000_000.0
    uptime_s: float = 698_000.0
    plant: tuple[str, ...] = ()
    walks: int | None = None
    walks_at: tuple[float, ...] = ()
    walk_s: float = 6.6
    gaps: tuple[tuple[float, float], ...] = ()
    reboot_at: float | None = None
    jumps: tuple[tuple[float, float], ...] = ()
    stack_hertz: int = 0
    stack_nodes: int = 60_000

    def __post_init__(self) -> None:
        unknown = set(self.plant) - set(CAUSES) - set(TWINS) - {"healthy"}
        if unknown:
            raise ValueError(f"cannot plant: {', '.join(sorted(unknown))}")
        if min(self.cores, self.nics, self.queues) < 1 or self.seconds < 1:
            raise ValueError("at least one core, NIC, queue and second are required")
        if min(self.processes, self.cgroups, self.units) < 40:
            raise ValueError("at least 40 processes, cgroups and units are required")
        if {"zombie_walk", "nic_reset"} <= set(self.plant) and self.walk_s <= RESET_AFTER_S:
            raise ValueError(f"a walk of {self.walk_s} s resets no NIC: the driver waits 5 s")

    @property
    def seconds(self) -> int:
        return round(self.hours * 3600)

    @property
    def many_zombies(self) -> bool:
        """Does the node have many zombies from the start?"""
        return bool({"crash_loop", "zombie_walk", "zombies_without_starvation"} & set(self.plant))


class Hold(NamedTuple):
    """One core held in "system" by kubelet's walk, or in "softirq" by a flood."""

    start: float
    end: float
    core: int
    queue: int
    kind: str


class Reset(NamedTuple):
    """One reset of the first NIC; `waited_s` is how long NAPI was starved, 0 if it was not."""

    at: float
    queue: int
    waited_s: float

    @property
    def down(self) -> tuple[float, float]:
        return self.at, self.at + DOWN_S


class PlannedAlarm(NamedTuple):
    """An alarm that the recorder would have raised, at that elapsed second.

    `since` is when the problem started; `is_new` is false while a similar alarm continues.
    """

    at: int
    kind: str
    about: str
    since: float
    is_new: bool = True


class Ticks(NamedTuple):
    """The readings of one segment, a second apart, on all three clocks.

    `dt` is the time since the previous reading: after a gap its length, after a boot the uptime.
    """

    elapsed: Array
    mono: Array
    wall: Array
    dt: Array
    boot: int
    #: Indices of the ticks at which the expensive tables are read.
    scans: Array


@dataclass(frozen=True, slots=True)
class Planted:
    """A planted cause: its entities, and when, on both clocks."""

    cause: str
    entities: Mapping[str, str]
    start: tuple[float, float]
    end: tuple[float, float]


@dataclass(slots=True)
class Schedule:
    """When everything happens."""

    plan: Plan
    holds: list[Hold] = field(default_factory=list)
    resets: list[Reset] = field(default_factory=list)
    alarms: list[PlannedAlarm] = field(default_factory=list)
    #: Recorded spans as (first second, end, boot).
    spans: list[tuple[int, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        plan = self.plan
        rng = np.random.default_rng([plan.seed, 1])
        self.spans = list(_recorded_spans(plan))
        names = set(plan.plant)
        timed = names & {"zombie_walk", "nic_reset", "reset_without_zombies", "flood"}
        for moment in self._moments(rng) if timed else ():
            queue = int(rng.integers(plan.queues))
            core = queue % plan.cores
            length = plan.walk_s * (1 + float(rng.uniform(0, 0.08)))
            if "zombie_walk" in names:
                self.holds.append(Hold(moment, moment + length, core, queue, "system"))
            if "nic_reset" in names:
                waited = length - 0.004
                self.resets.append(Reset(moment + waited, queue, waited))
            if "reset_without_zombies" in names:
                self.resets.append(Reset(moment, queue, 0.0))
            if "flood" in names:
                self.holds.append(Hold(moment, moment + _FLOOD_S, core, queue, "softirq"))
        self.alarms = list(_mark_new(sorted(self._alarms())))

    def _moments(self, rng: np.random.Generator) -> list[float]:
        plan = self.plan
        if plan.walks_at:
            for at in plan.walks_at:
                if not any(a < at < b - plan.walk_s for a, b, _ in self.spans):
                    raise ValueError(f"nothing is recorded {at} s after the start")
            return sorted(plan.walks_at)
        wanted = plan.walks if plan.walks is not None else max(1, round(plan.hours / 12))
        found: list[float] = []
        for turn in range(wanted):
            for _ in range(1000):
                moment = plan.seconds * (turn + float(rng.uniform(0.15, 0.85))) / wanted
                clear = not found or moment - found[-1] > 90
                if clear and any(a + 30 < moment < b - 90 for a, b, _ in self.spans):
                    found.append(moment)
                    break
            else:
                raise ValueError(f"the recorded time has no room for {wanted} walks")
        return found

    def _alarms(self) -> list[PlannedAlarm]:
        raised = []
        for hold in self.holds:
            seen = ceil(hold.start) + 2
            if seen <= hold.end:
                raised.append(PlannedAlarm(seen, "held_core", f"core {hold.core}", hold.start))
        raised += [
            PlannedAlarm(ceil(reset.at), "nic_reset", "eth0", reset.at) for reset in self.resets
        ]
        if self.plan.many_zombies:
            first = self.spans[0][0]
            raised.append(PlannedAlarm(first, "zombie_memcgs", "", first))
        return raised

    def mono(self, elapsed: float) -> float:
        """CLOCK_MONOTONIC of the current boot."""
        plan = self.plan
        if plan.reboot_at is None or elapsed < plan.reboot_at:
            return plan.uptime_s + elapsed
        return elapsed - (int(plan.reboot_at) + _OUTAGE_S) + _BOOT_S

    def wall(self, elapsed: float) -> float:
        """The wall clock."""
        jumped = sum(hours for at, hours in self.plan.jumps if elapsed >= at)
        return self.plan.start + elapsed + 3600 * jumped

    def both(self, elapsed: float) -> tuple[float, float]:
        return round(self.mono(elapsed), 6), round(self.wall(elapsed), 6)

    def segments(self) -> list[Ticks]:
        """Every segment's ticks, in order."""
        made: list[Ticks] = []
        last: tuple[int, int] | None = None
        for first, end, boot in self.spans:
            for start in range(first, end, SEGMENT_S):
                elapsed = np.arange(start, min(start + SEGMENT_S, end), dtype=np.float64)
                mono = self.mono(start) + (elapsed - start)
                dt = np.ones(len(elapsed))
                new_boot = last is None or last[1] != boot
                dt[0] = mono[0] if new_boot or last is None else start - last[0]
                wall = np.array([self.wall(index) for index in elapsed])
                made.append(Ticks(elapsed, mono, wall, dt, boot, self._scans(elapsed)))
                last = (int(elapsed[-1]), boot)
        return made

    def _scans(self, elapsed: Array) -> Array:
        due = elapsed % 10 == 0
        for alarm in self.alarms:
            due |= (elapsed >= alarm.at) & (elapsed <= alarm.at + DETAIL_S)
        return np.flatnonzero(due)

    def planted(self) -> tuple[Planted, ...]:
        """Everything that a diagnosis should find."""
        plan = self.plan
        planted = []
        first, last = self.spans[0][0], self.spans[-1][1] - 1
        whole = (self.both(first), self.both(last))
        if "crash_loop" in plan.plant:
            about = {"unit": UNIT, "cgroup": f"/system.slice/{UNIT}", "period_s": f"{PERIOD_S}"}
            planted.append(Planted("crash_loop", about, *whole))
        planted += [Planted(name, {}, *whole) for name in ("busy_user",) if name in plan.plant]
        for hold in self.holds:
            about = {"core": str(hold.core), "queue": f"eth0:{hold.queue}"}
            if hold.kind == "system":
                about["task"] = "kubelet[2113/2140]"
            cause = "zombie_walk" if hold.kind == "system" else "flood"
            planted.append(Planted(cause, about, self.both(hold.start), self.both(hold.end)))
        for reset in self.resets:
            about = {"nic": "eth0"}
            if reset.waited_s:
                about |= {"queue": f"eth0:{reset.queue}", "core": str(reset.queue % plan.cores)}
            cause = "nic_reset" if reset.waited_s else "reset_without_zombies"
            planted.append(Planted(cause, about, *map(self.both, reset.down)))
        for at, seconds in plan.gaps:
            planted.append(Planted("gap", {}, self.both(at), self.both(at + seconds)))
        if plan.reboot_at is not None:
            back = int(plan.reboot_at) + _OUTAGE_S
            planted.append(Planted("reboot", {}, self.both(plan.reboot_at - 1), self.both(back)))
        for at, hours in plan.jumps:
            about = {"hours": f"{hours:g}"}
            planted.append(Planted("clock_jump", about, self.both(at - 1), self.both(at)))
        return tuple(sorted(planted, key=lambda item: (item.start[1], item.cause)))


def _mark_new(alarms: Iterable[PlannedAlarm]) -> Iterator[PlannedAlarm]:
    last: dict[tuple[str, str], int] = {}
    for alarm in alarms:
        before = last.get((alarm.kind, alarm.about))
        last[alarm.kind, alarm.about] = alarm.at
        yield alarm._replace(is_new=before is None or alarm.at - before >= CALM_S)


def _recorded_spans(plan: Plan) -> list[tuple[int, int, int]]:
    cuts = [(int(at), int(at + seconds), 0) for at, seconds in plan.gaps]
    if plan.reboot_at is not None:
        cuts.append((int(plan.reboot_at), int(plan.reboot_at) + _OUTAGE_S, 1))
    found, start, boot = [], 0, 0
    for begin, end, booted in sorted(cuts):
        if begin > start:
            found.append((start, min(begin, plan.seconds), boot))
        start, boot = max(start, end), boot + booted
    if start < plan.seconds:
        found.append((start, plan.seconds, boot))
    return found


def overlap(start: float, end: float, ticks: Ticks) -> Array:
    """Seconds of each tick's step between two elapsed moments."""
    begin = np.maximum(ticks.elapsed - ticks.dt, start)
    return np.asarray(np.maximum(0.0, np.minimum(ticks.elapsed, end) - begin))
