"""What the probe costs inside the kernel, and when it has to pause because of that.

**Cost.** The kernel measures each program's time over all cores (`run_time_ns`), but only on
request: it then patches its own code, and every core must answer an interrupt for that. While a
core has interrupts off, the requester spins in the kernel on a core of its own (seen in a virtual
machine: 6.4 s). So it is requested for one second an hour, never during an alarm or a wait, and in
between a call costs what it cost then. Measured with a packet flood whose packets were charged to
their own CPU time, on a 6.18 virtual machine with retpolines, in nanoseconds a run: 107 for an
empty program, 214 for ours; the kernel reported 146. So the kernel leaves out about 60 ns of
calling us. `run_ns` is the kernel's number; shares of a core and `spent_ms` include the rest.

The cost is divided among cores by events: our own tallies count raises and waits of the network's
vectors; `/proc/softirqs` counts all others, for which our programs run too (once at the raise, once
at the entry) and return at once. Such a call weighs half of a counted one.

**Duty.** Over 0.5 % of any core's time in a sampled second, the probe runs one second in ten. If
that still averages over 0.5 %, it stays off until a trigger. A trigger turns it on whatever it
costs; after the alarm it is judged again. Three cheap seconds in a row, at less than half of the
limit, let it run all the time again. While it runs one second in ten, a wait in progress at the end
of the second keeps it running until the wait ends: otherwise no wait over a second would ever be
seen.

>>> shares({0: Events(100, 0), 1: Events(0, 200)})
{0: 0.5, 1: 0.5}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sexton.model.counters import wrapped
from sexton.model.rows.cpu import SoftirqCount

#: Not included in `run_time_ns`, per run: the tracepoint's call.
CALL_NS = 60
#: For kernels that do not measure: 1.5 times what was measured on one that does.
NETWORK_NS, OTHER_NS = 300, 150
_CALLS_PER_SOFTIRQ = 2
_BITS = 32


class Events(NamedTuple):
    """Calls of our programs on one core: for the network's vectors, and for others."""

    network: int
    other: int

    @property
    def weight_ns(self) -> int:
        return self.network * NETWORK_NS + self.other * OTHER_NS


class Cost(NamedTuple):
    """What a sampled second cost on all cores, and on the core that paid most.

    `run_ns` and `runs` are the kernel's numbers, `whole_ns` includes what it leaves out.
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
    """Softirqs other than the network's between two readings; the counters have 32 bits.

    >>> from dataclasses import replace
    >>> early = SoftirqCount(0, 2**32 - 1, 5, 5, 0, 0, 10, None, 3)
    >>> others(early, replace(early, timer=4, net_rx=99, sched=20))
    15
    """
    moved = 0
    for name in ("timer", "block", "tasklet", "sched", "hrtimer", "rcu"):
        was, now = getattr(before, name), getattr(after, name)
        if was is not None and now is not None:
            moved += wrapped(was, now, _BITS)
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
    whole = sum(number.weight_ns for number in by_core.values())
    return {cpu: value.weight_ns / whole if whole else 0.0 for cpu, value in by_core.items()}


class Price(NamedTuple):
    """What our programs cost, as multiples of `Events.weight_ns`: by the kernel's number, and with
    what that leaves out."""

    run: float
    whole: float


def price(by_core: Mapping[int, Events], runs: int, run_ns: int) -> Price | None:
    """From a second that the kernel measured; `None` if it measured nothing.

    >>> price({0: Events(10, 0)}, 10, 1500)
    Price(run=0.5, whole=0.7)
    """
    weight = sum(number.weight_ns for number in by_core.values())
    if not weight or not runs:
        return None
    return Price(run_ns / weight, (run_ns + runs * CALL_NS) / weight)


def settle(by_core: Mapping[int, Events], seconds: float, known: Price | None) -> Cost:
    """The cost of a sampled second; `known` is `None` where the kernel cannot measure."""
    parts = shares(by_core)
    worst = max(parts, key=lambda cpu: parts[cpu])
    weight = sum(number.weight_ns for number in by_core.values())
    runs = sum(number.network + number.other for number in by_core.values())
    run, whole = known or Price(1.0, 1.0)
    method = "estimate" if known is None else "run_time_ns"
    whole_ns = weight * whole
    return Cost(
        method, round(weight * run), runs, seconds, whole_ns, worst, whole_ns * parts[worst]
    )


ON, PART, OFF = "on", "1 s in 10", "off"
LIMIT_PERCENT = 0.5
CYCLE_S = 10.0
#: How often the kernel measures a second of it.
MEASURE_EVERY_S = 3600.0
#: A pending wait of this length keeps the probe running, up to the second limit.
WORTH_STAYING_S = 0.25
LONGEST_STAY_S = 30.0
_CHEAP_SECONDS = 3
#: A reading this much early counts as on time.
_SLACK_S = 0.2


class Orders(NamedTuple):
    """What to do until the next reading: run the probe, judge its cost by the number of events, and
    have the kernel measure what an event costs."""

    watch: bool
    sample: bool
    measure: bool = False


@dataclass(slots=True)
class Duty:
    """The state between readings; times are monotonic seconds."""

    mode: str = ON
    why: str = ""
    last: Cost | None = None
    _cheap: int = 0
    _sample_from: float = 0.0
    _measure_from: float = 0.0
    _rests_until: float = 0.0
    _watching_since: float | None = None
    _alarmed: bool = False

    @property
    def average_percent(self) -> float | None:
        """The last cost, averaged over the time in which the probe pauses."""
        if self.last is None:
            return None
        return self.last.worst_percent if self.mode == ON else _spread(self.last)

    def charge(self, cost: Cost, now: float) -> None:
        """Judge a sampled second."""
        self.last = cost
        if self._alarmed:
            return
        percent = cost.worst_percent
        if self.mode == ON and percent > LIMIT_PERCENT:
            self._become(PART, f"{_words(percent, cost.worst_core)} in a sampled second")
            self._rest(now)
        elif self.mode == PART:
            spread = _spread(cost)
            self._cheap = self._cheap + 1 if percent < LIMIT_PERCENT / 2 else 0
            if spread > LIMIT_PERCENT:
                self._become(OFF, f"{_words(spread, cost.worst_core)} even at 1 s in 10")
            elif self._cheap >= _CHEAP_SECONDS:
                self._become(ON, "")

    def orders(self, now: float, alarm: bool, pending_s: float = 0.0) -> Orders:
        """What to do from `now` on; `pending_s` is the longest wait in progress."""
        orders = self._orders(now, alarm, pending_s)
        calm = not alarm and pending_s < WORTH_STAYING_S
        if not orders.sample or not calm or now + _SLACK_S < self._measure_from:
            return orders
        self._measure_from = now + MEASURE_EVERY_S
        return orders._replace(measure=True)

    def _orders(self, now: float, alarm: bool, pending_s: float) -> Orders:
        if alarm != self._alarmed:
            self._alarmed = alarm
            self._become(ON, "")
            self._sample_from = now  # judge it as soon as the alarm is over
        if self.mode == OFF:
            return Orders(False, False)
        if self.mode == ON:
            sample = now + _SLACK_S >= self._sample_from
            if sample:
                self._sample_from = now + CYCLE_S
            return Orders(True, sample)
        since = self._watching_since
        if since is None:
            if now + _SLACK_S < self._rests_until:
                return Orders(False, False)
            self._watching_since = now
            return Orders(True, True)
        if pending_s >= WORTH_STAYING_S and now - since < LONGEST_STAY_S:
            return Orders(True, True)
        self._rest(now)
        return Orders(False, False)

    def _rest(self, now: float) -> None:
        self._watching_since = None
        self._rests_until = now + CYCLE_S - 1

    def _become(self, mode: str, why: str) -> None:
        self.mode, self.why, self._cheap = mode, why, 0
        self._watching_since = None


def _spread(cost: Cost) -> float:
    return cost.worst_percent * cost.seconds / max(CYCLE_S, cost.seconds)


def _words(percent: float, core: int) -> str:
    return f"{percent:.2f} % of core {core}, at most {LIMIT_PERCENT} % allowed,"
