"""The recorder's budget: what it may cost, and what it pauses when it costs more.

The share of one core over the last minute includes everything: our threads, the children, and the
time the kernel spends on our behalf in probes. Over the limit, what can be done later is paused
first (decoding, shipping), then the most expensive source: it is read four times less often and, if
that was not enough, not at all; then stacks, and last what explains a starved NIC (the wait probe,
the event ring). Cores and the kernel log are never paused. Where nothing is left to pause, the
excess is reported.

What was paused resumes after two minutes in which there was room for it: below half of the limit,
or with what it had cost below all of it. What has to be paused again stays paused twice as long
each time, at most half an hour; after that long below the limit everything is tried again, so that
nothing stays paused because of what it cost on a worse day. Every step is recorded, shown in the
status and on the terminal.
"""

from __future__ import annotations

import os
import resource
from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

from sexton.model.counters import delta, moved
from sexton.record.schedule import ESSENTIAL
from sexton.series.rates import lasts

#: Per cent of one core. On a big machine one core is a smaller part, and there is more to read.
LEAST_PERCENT = 2.0
CORES_PER_PERCENT = 16
MEMORY_BYTES = 200 << 20
#: With perf (its own buffers) and the child that decodes its files. Both need more on big machines.
WITH_STACKS_BYTES = 300 << 20
_FEW_CORES, _CORE_BYTES = 16, 3 << 19
OVER_S = 60.0
_CALM_S = 120.0
_MOST_CALM_S = 1800.0
_REPORT_AGAIN_S = 600.0
#: What is paused first (0) and last (3); everything else is 1.
_ORDER = {"perf.decode": 0, "ship": 0, "perf.stacks": 2, "bpf.softirq_wait": 3, "tracefs.ring": 3}
#: Companions cannot be slowed.
_WHOLE = frozenset(("perf.decode", "ship", "perf.stacks", "tracefs.ring"))
#: A source below this share of the limit is not worth pausing while another is above it.
_WORTH = 0.1
_SLOWER = 4.0
#: How many times the limit is allowed during an alarm: it reads more often on purpose, and the
#: source it needs must not be paused for that.
CLOSER_TIMES = 4.0


def default_percent() -> float:
    """The default limit.

    >>> default_percent() >= LEAST_PERCENT
    True
    """
    return max(LEAST_PERCENT, (os.cpu_count() or 1) / CORES_PER_PERCENT)


def memory_limit(stacks: bool) -> int:
    """Resident bytes, ours and our children's, above which something is paused."""
    more = max((os.cpu_count() or 1) - _FEW_CORES, 0) * _CORE_BYTES
    return WITH_STACKS_BYTES + more if stacks else MEMORY_BYTES


class Spent(NamedTuple):
    """CPU seconds used so far, and resident bytes now."""

    own_s: float
    children_s: float
    kernel_s: float
    rss_bytes: int

    @property
    def all_s(self) -> float:
        return self.own_s + self.children_s + self.kernel_s


class Verdict(NamedTuple):
    """What to do about a source: `action` is "slow", "rest", "restore", or "report" if nothing can
    be done."""

    action: str
    source: str
    why: str


class _Paused(NamedTuple):
    """A source that is slowed ("slow") or paused ("rest"), and what it cost: per cent of a core."""

    action: str
    source: str
    percent: float


class Budget:
    """Checks the cost every few seconds; one change at a time, then a minute to see its effect."""

    def __init__(self, percent: float | None = None, memory_bytes: int = MEMORY_BYTES) -> None:
        self.percent = default_percent() if percent is None else percent
        self.memory_bytes = memory_bytes
        self._history: deque[tuple[float, Spent, dict[str, float]]] = deque()
        self._paused: list[_Paused] = []
        self._changed_s = -OVER_S
        #: Since when the share has been below half of the limit, and below all of it.
        self._calm_since: float | None = None
        self._below_since: float | None = None
        self._reported_s: dict[str, float] = {}
        self._times_given_up: Counter[str] = Counter()

    @property
    def share(self) -> float | None:
        """Per cent of one core over the last minute; `None` before two measurements."""
        if len(self._history) < 2:
            return None
        (start, before, _), (end, after, _) = self._history[0], self._history[-1]
        spent_s = delta(before.all_s, after.all_s)  # the CPU time of an ending child may be lost
        return None if spent_s is None else 100 * spent_s / (end - start)

    @property
    def given_up(self) -> tuple[tuple[str, str], ...]:
        """Sources that are slowed ("slow") or paused ("rest") now."""
        return tuple((paused.action, paused.source) for paused in self._paused)

    def judge(
        self, now: float, spent: Spent, costs: Mapping[str, float], times: float = 1.0
    ) -> Verdict | None:
        """What to change at `now` (monotonic seconds), if anything.

        `costs` are the seconds each source and companion has used so far; at the moment, `times`
        the limit is allowed.
        """
        self._history.append((now, spent, dict(costs)))
        while now - self._history[0][0] > OVER_S + 5:
            self._history.popleft()
        share, watched = self.share, now - self._history[0][0]
        if share is None or not lasts(watched, OVER_S) or now - self._changed_s < OVER_S:
            return None
        limit = self.percent * times
        if share > limit:
            self._calm_since = self._below_since = None
            return self._give_up(now, costs, share, limit)
        if share > self.percent:
            self._below_since = None
        elif self._below_since is None:
            self._below_since = now
        if share > self.percent / 2:
            self._calm_since = None
        elif self._calm_since is None:
            self._calm_since = now
        return self._resume(now, share)

    def _resume(self, now: float, share: float) -> Verdict | None:
        """The last one paused for which there has been room for long enough."""
        for paused in reversed(self._paused):
            wait_s = min(_CALM_S * 2 ** (self._times_given_up[paused.source] - 1), _MOST_CALM_S)
            fits = share + paused.percent <= self.percent
            for since, least_s in (
                (self._below_since if fits else self._calm_since, wait_s),
                (self._below_since, _MOST_CALM_S),
            ):
                if since is not None and now - since >= least_s:
                    self._changed_s = now
                    self._below_since = now
                    self._calm_since = None if self._calm_since is None else now
                    self._paused.remove(paused)
                    why = f"{_percent(share)} of a core for {least_s / 60:.0f} min"
                    return Verdict("restore", paused.source, why)
        return None

    def judge_memory(self, now: float, rss: int, heavy: Mapping[str, int]) -> Verdict | None:
        """What to do about memory: reading less frees none, but the child of a companion (`heavy`,
        by resident bytes) can be ended: in the order in which CPU time is given up, the heaviest
        of equals first. If there is none, report it every ten minutes."""
        if rss <= self.memory_bytes or now - self._changed_s < OVER_S:
            return None
        why = f"{rss >> 20} MB of memory, limit {self.memory_bytes >> 20} MB"
        resting = {paused.source for paused in self._paused}
        awake = {name: size for name, size in heavy.items() if size and name not in resting}
        chosen = min(awake, key=lambda name: (_ORDER.get(name, 1), -awake[name]), default=None)
        if chosen is not None:
            self._paused.append(_Paused("rest", chosen, 0.0))
            self._times_given_up[chosen] += 1
            self._changed_s = now
            return Verdict("rest", chosen, why)
        return self._report(now, "memory", why)

    def _give_up(
        self, now: float, costs: Mapping[str, float], share: float, limit: float
    ) -> Verdict | None:
        start, _, before = self._history[0]
        resting = {paused.source for paused in self._paused if paused.action == "rest"}
        spent = moved(before, costs, born=True)
        # Decoding is counted over the minutes it decoded: what it owes is no reason to pause more.
        owed_s = sum(cost for name, cost in spent.items() if name in resting)
        if share - 100 * owed_s / (now - start) <= limit:
            return None
        why = f"{_percent(share)} of a core, limit {_percent(limit)}"
        spent = {
            name: cost
            for name, cost in spent.items()
            if name not in ESSENTIAL and name not in resting
        }
        least_s = _WORTH * limit / 100 * (now - start)
        worth = [name for name, cost in spent.items() if cost >= least_s]
        if not worth and sum(spent.values()) >= least_s:  # many small ones
            worth = [name for name, cost in spent.items() if cost > 0]
        chosen = min(worth, key=lambda name: (_ORDER.get(name, 1), -spent[name]), default=None)
        if chosen is None:
            return self._report(now, "CPU time", f"{why}; nothing is left to pause")
        slowed = next((paused for paused in self._paused if paused.source == chosen), None)
        action = "rest" if slowed is not None or chosen in _WHOLE else "slow"
        percent = 100 * spent[chosen] / (now - start)
        if slowed is None:
            self._times_given_up[chosen] += 1
        else:
            self._paused.remove(slowed)
            percent = max(percent, slowed.percent)
        self._paused.append(_Paused(action, chosen, percent))
        self._changed_s = now
        return Verdict(action, chosen, why)

    def _report(self, now: float, what: str, why: str) -> Verdict | None:
        """An excess that pausing cannot end: now, and every ten minutes while it lasts."""
        if now - self._reported_s.get(what, -_REPORT_AGAIN_S) < _REPORT_AGAIN_S:
            return None
        self._reported_s[what] = now
        return Verdict("report", what, why)


def _percent(value: float) -> str:
    """With two decimals below 1 %: small limits differ little from what exceeds them."""
    return f"{value:.1f} %" if value >= 1 else f"{value:.2f} %"


def slower(period_s: float) -> float:
    """The period of a source that costs too much."""
    return period_s * _SLOWER


_counted_by_companions: list[float] = [0.0]


def waited_children_s() -> float:
    """CPU seconds of exited children, except those a companion accounts for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime - _counted_by_companions[0]


def exclude_child_cpu(cpu_s: float) -> None:
    """Exclude an exited child's CPU time that a companion's `cost` already includes."""
    _counted_by_companions[0] += cpu_s


def own_rss() -> int:
    """Resident bytes now."""
    with open("/proc/self/statm", "rb") as stream:
        return int(stream.read().split()[1]) * resource.getpagesize()
