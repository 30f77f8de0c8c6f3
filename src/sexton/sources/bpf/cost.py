"""What the probe costs inside the kernel, and which core pays it.

The kernel measures each program's time over all cores (`run_time_ns`), but only while somebody
asks it to, since measuring costs too. A packet flood whose packets were each charged to its own CPU
time, on a 6.18 virtual machine with retpolines, put it so, in nanoseconds a run: 107 to be called
at all (an empty program), 214 for ours, 340 for ours while it is measured; the kernel said 146. So
it leaves out some 60 of the way to us, and 130 of its own measuring, which is counted for the part
of the time in which it measures. `run_ns` is told as the kernel told it; shares of a core and
`spent_ms` include what it leaves out.

Which core paid is told by what happened on each: our own tallies count raises and waits of the
network's vectors, `/proc/softirqs` counts all others, which we turn away but are called for, once
at the raise and once at the entry. A call that is turned away counts half of one that is not.

>>> shares({0: Events(100, 0), 1: Events(0, 200)})
{0: 0.5, 1: 0.5}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sexton.model.cpu import SoftirqCount

#: What `run_time_ns` leaves out of a run: the tracepoint's call, and the measuring itself.
CALL_NS, MEASURING_NS = 60, 130
#: For kernels that do not measure, half as much again as was measured where one does.
NETWORK_NS, OTHER_NS = 300, 150
_CALLS_PER_SOFTIRQ = 2
_WRAP = 1 << 32


class Events(NamedTuple):
    """Calls of our programs on one core: for the network's vectors, and for others."""

    network: int
    other: int

    @property
    def weight_ns(self) -> int:
        return self.network * NETWORK_NS + self.other * OTHER_NS


class Cost(NamedTuple):
    """What a sampled second cost on all cores, and how the core that paid most fared.

    `run_ns` and `runs` are as the kernel told them, `whole_ns` is with what it leaves out.
    """

    method: str
    run_ns: int
    runs: int
    seconds: float
    whole_ns: float
    worst_core: int
    worst_ns: float

    @property
    def worst_percent(self) -> float:
        return self.worst_ns / (self.seconds * 1e9) * 100


def others(before: SoftirqCount, after: SoftirqCount) -> int:
    """Softirqs that are not the network's between two readings; the counters have 32 bits.

    >>> from dataclasses import replace
    >>> early = SoftirqCount(0, 2**32 - 1, 5, 5, 0, 0, 10, None, 3)
    >>> others(early, replace(early, timer=4, net_rx=99, sched=20))
    15
    """
    moved = 0
    for name in ("timer", "block", "tasklet", "sched", "hrtimer", "rcu"):
        was, now = getattr(before, name), getattr(after, name)
        if was is not None and now is not None:
            moved += (now - was) % _WRAP
    return moved


def events(
    network: Mapping[int, int], before: Iterable[SoftirqCount], after: Iterable[SoftirqCount]
) -> dict[int, Events]:
    """Per core, from our own count of the network's events and two readings of the kernel's."""
    known = {row.cpu: row for row in before}
    found = {cpu: Events(times, 0) for cpu, times in network.items()}
    for row in after:
        earlier = known.get(row.cpu)
        if earlier is not None and row.cpu in found:
            other = others(earlier, row) * _CALLS_PER_SOFTIRQ
            found[row.cpu] = Events(found[row.cpu].network, other)
    return found


def shares(by_core: Mapping[int, Events]) -> dict[int, float]:
    """Each core's part of the whole."""
    whole = sum(each.weight_ns for each in by_core.values())
    return {cpu: each.weight_ns / whole if whole else 0.0 for cpu, each in by_core.items()}


class Measured(NamedTuple):
    """What the kernel told of a sampled second, and in what part of the time it is asked to."""

    run_ns: int
    runs: int
    sampled: float

    @property
    def whole_ns(self) -> float:
        return self.run_ns + self.runs * (CALL_NS + MEASURING_NS * self.sampled)


def settle(by_core: Mapping[int, Events], seconds: float, measured: Measured | None) -> Cost:
    """The bill of a sampled second; `None` for `measured` where the kernel did not tell."""
    parts = shares(by_core)
    worst = max(parts, key=lambda cpu: parts[cpu])
    if measured is not None:
        told = "run_time_ns", measured.run_ns, measured.runs
        whole = measured.whole_ns
    else:
        guess = sum(each.weight_ns for each in by_core.values())
        told = "estimate", guess, sum(each.network + each.other for each in by_core.values())
        whole = float(guess)
    return Cost(*told, seconds, whole, worst, whole * parts[worst])
