"""Cores that serve a NIC queue, were held in the kernel, and polled nothing meanwhile.

What can be seen of a starved NAPI without a probe: `/proc/softirqs` counts each run of NET_RX per
core. A core that serves a queue, spends whole steps in system time and does not run NET_RX once in
them has not polled that queue. But a queue without packets looks the same. So a silence counts as
starving only where something asked for a poll: the queue's interrupt fired meanwhile, or the core
polls so often otherwise, with the interface's traffic going on elsewhere, that chance is excluded.
Any other silence is a question that only a probe can answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from sexton.detect import nics
from sexton.model.cpu import CoreTimes, Interrupt, SoftirqCount
from sexton.model.net import NetDevice, NicQueue
from sexton.model.window import Window
from sexton.series.cores import CoreSeries, core_series
from sexton.series.rates import F32, F64, Run, Steps, runs, steps_of
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


def can_tell(window: Window) -> bool:
    """Was everything read that a silence is made of?"""
    edges = [window.bounds_of(kind) for kind in (CoreTimes, SoftirqCount)]
    twice = all(each is not None and each[1] > each[0] for each in edges)
    return twice and window.read(NicQueue)


def silences(window: Window, share_percent: float) -> list[Silence]:
    """Where a queue's core was silent and might have been asked, the longest first."""
    served = nics.serving_cores(window)
    series = core_series(window)
    if not served or series is None or not can_tell(window):
        return []
    polls = steps_of(window.columns(SoftirqCount, ("net_rx",), lambda key: key[0] in served))
    found: list[Silence] = []
    for row, thing in enumerate(polls.things):
        core = cast("int", thing[0])
        ran = polls.moved["net_rx"][row]
        silent = (ran == 0) & (_system(series, core, polls) >= share_percent)
        for run in runs(polls, silent[None]):
            made = _silence(window, (core, served[core]), run, polls, ran)
            if made.is_starved or made.imaginable >= _IMAGINABLE:
                found.append(made)
    return sorted(found, key=lambda each: -each.seconds)


def _silence(
    window: Window, served: tuple[int, tuple[NicQueue, ...]], run: Run, polls: Steps, ran: F64
) -> Silence:
    core, queues = served
    start, end = run.start, run.end
    before = window.between(SoftirqCount, start, start)[:1]
    counted = next((row.net_rx or 0 for each in before for row in each.rows if row.cpu == core), 0)
    outside = (polls.end <= start) | (polls.start >= end)
    rates = np.nan_to_num(ran[outside]) / polls.seconds[outside]
    return Silence(
        core=core,
        start=start,
        end=end,
        interrupts=_interrupts(window, core, queues, run),
        packets=_packets(window, {row.nic for row in queues}, run),
        # The fewest and not the average, since traffic comes in bursts; two steps at the least.
        expected=float(rates.min()) * (end - start) if len(rates) > 1 else 0.0,
        imaginable=counted / max(start, 1.0) * (end - start),
        queues=queues,
    )


def _system(series: CoreSeries, core: int, polls: Steps) -> F64:
    """System time of a core in each step of another table, in per cent of what it was given.

    The two files are read a moment apart: each of the core's steps counts by its overlap.
    """
    if core not in series.cores:
        return np.zeros(len(polls.end))
    row = series.cores.index(core)
    spent, given = (
        _accumulated(series, np.nan_to_num(each[row]), polls)
        for each in (series.system, series.given)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        share: F64 = np.nan_to_num(100 * spent / given)
    return share


def _accumulated(series: CoreSeries, seconds: F32, polls: Steps) -> F64:
    """Seconds of the core's steps that fall into each step of the other table."""
    edges = np.concatenate([series.start, series.end])
    sums = np.concatenate([np.cumsum(seconds) - seconds, np.cumsum(seconds)])
    order = np.argsort(edges, kind="stable")
    before, after = (
        np.interp(each, edges[order], sums[order]) for each in (polls.start, polls.end)
    )
    made: F64 = after - before
    return made


def _interrupts(window: Window, core: int, queues: Sequence[NicQueue], run: Run) -> int:
    """How often the queues' interrupts fired on the core inside the silence."""
    irqs = {str(row.irq) for row in queues}
    total = 0
    read = window.between(Interrupt, run.start, run.end)
    for irq, step in steps(read, lambda row: row.irq):
        before, after = step.before, step.after
        if irq in irqs and before.cpus == after.cpus and _is_inside(step, run):
            counts = zip(after.cpus, before.counts, after.counts, strict=False)
            total += sum(delta(was, now) or 0 for cpu, was, now in counts if cpu == core)
    return total


def _packets(window: Window, names: Collection[str], run: Run) -> int:
    """Packets that these interfaces received inside the silence."""
    read = window.between(NetDevice, run.start, run.end)
    return sum(
        step.delta("rx_packets") or 0
        for name, step in steps(read, lambda row: row.name)
        if name in names and _is_inside(step, run)
    )


def _is_inside(step: Step[Any], run: Run) -> bool:
    """Wholly: a step that begins before the silence may hold an interrupt whose poll came in
    time, since the files are read a moment apart."""
    return step.start_mono >= run.start and step.end_mono <= run.end
