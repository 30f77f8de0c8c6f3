"""Cores that serve a NIC queue, were held in the kernel, and polled nothing meanwhile.

What can be seen of a starved NAPI without a probe: `/proc/softirqs` counts each run of NET_RX per
core. A core that serves a queue, spends whole steps in system time and does not run NET_RX once in
them has not polled that queue. But a queue without packets looks the same. So a silence counts as
starving only where something asked for a poll: the queue's interrupt fired meanwhile, or the core
polls so often otherwise, with the interface's traffic going on elsewhere, that chance is excluded.
Any other silence is a question that only a probe can answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sexton.detect import nics
from sexton.detect.core_steps import core_steps
from sexton.model.cpu import CoreTimes, Interrupt, SoftirqCount
from sexton.model.net import NetDevice, NicQueue
from sexton.model.window import Window
from sexton.series.steps import Step, delta, steps

#: NET_RX runs that the rest of this window promises at the least; fewer may be chance.
_EXPECTED = 100.0
#: The same from its average since boot: below it nobody would have expected a poll at all.
_IMAGINABLE = 10.0


class Silence(NamedTuple):
    """One core without a poll from `start` to `end` (monotonic seconds), in the kernel meanwhile.

    `interrupts` is how often its queues' interrupts fired inside that time, `packets` what their
    interfaces received through other cores, `expected` how many polls the rest of the window
    promises at the least and `imaginable` how many the average since boot.
    """

    core: int
    start: float
    end: float
    interrupts: int
    packets: int
    expected: float
    imaginable: float
    queues: tuple[NicQueue, ...]

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def is_starved(self) -> bool:
        """Did something ask for the poll that did not come?"""
        return self.interrupts > 0 or (self.expected >= _EXPECTED and self.packets > 0)


class _Move(NamedTuple):
    """How often something happened between two readings."""

    start: float
    end: float
    times: int


class _Held(NamedTuple):
    """Seconds a core spent in system time between two readings."""

    start: float
    end: float
    system_s: float


def can_tell(window: Window) -> bool:
    """Was everything read that a silence is made of?"""
    kinds = (CoreTimes, SoftirqCount)
    twice = all(len(window.batches(kind) or ()) >= 2 for kind in kinds)
    return twice and window.batches(NicQueue) is not None


def silences(window: Window, share_percent: float) -> list[Silence]:
    """Where a queue's core was silent and might have been asked, the longest first."""
    served = nics.serving_cores(window)
    if not served or not can_tell(window):
        return []
    fired = _fired(window, {(row.irq, core) for core, rows in served.items() for row in rows})
    every = steps(window.batches(SoftirqCount) or (), lambda row: row.cpu)
    served_steps = [step for core, step in every if core in served]
    polls, received = _polls(served_steps), _received(window)
    found: list[Silence] = []
    for core, run in _runs(served_steps, _system(window, served), share_percent):
        start, end = run[0].start_mono, run[-1].end_mono
        queues = served[core]
        made = Silence(
            core=core,
            start=start,
            end=end,
            interrupts=sum(_inside(fired.get((row.irq, core), ()), start, end) for row in queues),
            packets=sum(
                _inside(received.get(nic, ()), start, end) for nic in {row.nic for row in queues}
            ),
            expected=_least_rate(polls.get(core, ()), start, end) * (end - start),
            imaginable=(run[0].before.net_rx or 0) / max(start, 1.0) * (end - start),
            queues=queues,
        )
        if made.is_starved or made.imaginable >= _IMAGINABLE:
            found.append(made)
    return sorted(found, key=lambda each: -each.seconds)


def _inside(moves: Sequence[_Move], start: float, end: float) -> int:
    """What moved in steps that lie wholly inside. The files are read a moment apart: a step that
    begins before the silence may hold an interrupt whose poll came in time."""
    return sum(each.times for each in moves if each.start >= start and each.end <= end)


def _least_rate(moves: Sequence[_Move], start: float, end: float) -> float:
    """The fewest NET_RX runs a second in the steps outside the silence.

    The fewest and not the average, since traffic comes in bursts; 0 where there are not two steps
    to compare with.
    """
    outside = [each for each in moves if each.end <= start or each.start >= end]
    if len(outside) < 2:
        return 0.0
    return min(each.times / (each.end - each.start) for each in outside)


def _polls(every: Iterable[Step[SoftirqCount]]) -> Mapping[int, list[_Move]]:
    """NET_RX runs per core."""
    found: dict[int, list[_Move]] = defaultdict(list)
    for step in every:
        times = step.delta("net_rx") or 0
        found[step.after.cpu].append(_Move(step.start_mono, step.end_mono, times))
    return found


def _received(window: Window) -> Mapping[str, list[_Move]]:
    """Packets received per interface."""
    found: dict[str, list[_Move]] = defaultdict(list)
    for _, step in steps(window.batches(NetDevice) or (), lambda row: row.name):
        times = step.delta("rx_packets") or 0
        found[step.after.name].append(_Move(step.start_mono, step.end_mono, times))
    return found


def _fired(window: Window, wanted: set[tuple[int, int]]) -> Mapping[tuple[int, int], list[_Move]]:
    """Interrupts per interrupt and core, of those wanted."""
    cores: dict[str, list[int]] = defaultdict(list)
    for irq, core in wanted:
        cores[str(irq)].append(core)
    found: dict[tuple[int, int], list[_Move]] = defaultdict(list)
    for _, step in steps(window.batches(Interrupt) or (), lambda row: row.irq):
        before, after = step.before, step.after
        if after.irq not in cores or before.cpus != after.cpus:
            continue
        for core in cores[after.irq]:
            counts = zip(after.cpus, before.counts, after.counts, strict=False)
            for times in (delta(was, now) or 0 for cpu, was, now in counts if cpu == core):
                found[int(after.irq), core].append(_Move(step.start_mono, step.end_mono, times))
    return found


def _runs(
    every: Iterable[Step[SoftirqCount]],
    system: Mapping[int, list[_Held]],
    share_percent: float,
) -> Iterator[tuple[int, list[Step[SoftirqCount]]]]:
    """Neighbouring steps of a core without NET_RX and with the core held, per core."""
    open_runs: dict[int, list[Step[SoftirqCount]]] = {}
    for step in every:
        core = step.after.cpu
        silent = step.delta("net_rx") == 0
        if silent and _share(system.get(core, ()), step) >= share_percent:
            run = open_runs.setdefault(core, [])
            if run and run[-1].end_mono != step.start_mono:
                yield core, open_runs.pop(core)
                run = open_runs.setdefault(core, [])
            run.append(step)
        elif core in open_runs:
            yield core, open_runs.pop(core)
    yield from open_runs.items()


def _share(held: list[_Held] | tuple[()], step: Step[SoftirqCount]) -> float:
    """System time of the step in per cent; the two files are read a moment apart."""
    spent = 0.0
    for each in held:
        overlap = min(each.end, step.end_mono) - max(each.start, step.start_mono)
        if overlap > 0:
            spent += each.system_s * overlap / (each.end - each.start)
    return 100 * spent / step.seconds


def _system(window: Window, cores: Collection[int]) -> Mapping[int, list[_Held]]:
    found: dict[int, list[_Held]] = defaultdict(list)
    for step in core_steps(window):
        spent = step.delta("system_ms") if step.after.cpu in cores else None
        if spent is not None:
            found[step.after.cpu].append(_Held(step.start_mono, step.end_mono, spent / 1000))
    return found
