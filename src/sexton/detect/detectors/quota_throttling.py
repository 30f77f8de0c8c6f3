"""A cgroup runs into its CPU quota and is stopped until its next period begins.

**What is seen.** Per cgroup with a quota (`cpu.stat`): how many of the periods in which it ran
ended with the quota used up (`nr_throttled` of `nr_periods`, 100 ms each unless set otherwise), and
how long its cores waited for the next period, all of them together, in the worst stretch of up to
half a minute. Named with its unit.

**Why it hurts.** All of its threads stand still for the rest of every such period, those that hold
a lock or answer a heartbeat too: a job that waits for it seems to hang, while the node's cores are
idle. That is also how it is told from a burnt core: no core is at 100 % system time, and nothing
outside that cgroup waits.

**What would make it wrong.** A quota is somebody's decision, and a batch job that is stopped all
day may be meant to be. A few throttled periods are ordinary, and so are many while a program
starts: they are absent, or *info*. The time is the sum over the cores on which the cgroup was
stopped, so one with many threads waits longer than the clock; how often is what compares. Counters
start again when a cgroup is made anew. One that lived for less than the time between two readings
is judged by what it has counted since the reading before; one that was gone before a second reading
cannot have been stopped for long. A parent's quota stops its children, and only the parent counts
it.

**Check by hand.** ``cat /sys/fs/cgroup/PATH/cpu.stat`` twice (v1: ``/sys/fs/cgroup/cpu/PATH``) and
``cpu.max`` (v1: ``cpu.cfs_quota_us``); ``systemctl show -p CPUQuotaPerSecUSec UNIT``.

**What to do.** Raise or remove the limit (``systemctl set-property UNIT CPUQuota=``, a pod's
``resources.limits.cpu``), or give it fewer threads: a runtime that counts the node's 96 cores
starts 96 workers on a quota of two. Reclaim and page faults do not cause throttling; where they
rise together, something else makes them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from sexton.detect.registry import detector, not_applicable, unknown
from sexton.detect.stems import unit_of
from sexton.detect.threshold import Threshold
from sexton.model.cgroup import CgroupThrottle
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.unit import Unit
from sexton.model.window import Batch, Window
from sexton.series.steps import Step

NAME = "quota_throttling"
OFTEN = Threshold(
    "often", 10, "throttled periods in a stretch", "a second's worth; fewer nobody notices"
)
NOTED = Threshold("noted", 10, "% of its periods", "below it only the slowest requests take longer")
MOSTLY = Threshold(
    "mostly", 50, "% of its periods", "from here on it is stopped more often than it gets through"
)
STOPPED = Threshold(
    "stopped",
    25,
    "% of the time, its cores together",
    "a sidecar that wakes up, bursts and is cut short waits far less than that",
)
LASTING = Threshold(
    "lasting", 10, "s in a row", "a program that starts runs into its quota for some seconds"
)
STRETCH = Threshold(
    "stretch", 30, "s", "long enough to tell a stop from a start, short enough not to average it"
)
#: Readings come a little early or late: nine tenths of a limit is that limit.
_SLACK = 0.9
_SHOWN = 8
#: The kernel's default, and by far the commonest.
_PERIOD_S = 0.1


class _Stretch(NamedTuple):
    """One cgroup over neighbouring readings."""

    path: str
    start: float
    end: float
    periods: int
    throttled: int
    stopped_s: float

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def share(self) -> float:
        """Of the periods in which it ran, in per cent."""
        return 100 * self.throttled / self.periods if self.periods else 0.0

    @property
    def stopped(self) -> float:
        """Of the time, in per cent; more than 100 where it was stopped on several cores."""
        return 100 * self.stopped_s / self.seconds

    @property
    def is_noted(self) -> bool:
        return self.throttled >= OFTEN.value and self.share >= NOTED.value

    @property
    def hurts(self) -> bool:
        lasts = self.seconds >= LASTING.value * _SLACK
        return lasts and self.share >= MOSTLY.value and self.stopped >= STOPPED.value


@detector(needs=(CgroupThrottle,), thresholds=(OFTEN, NOTED, MOSTLY, STOPPED, LASTING, STRETCH))
def detect(window: Window) -> Finding:
    """Who is stopped by its quota, the one that is stopped longest first."""
    batches = window.batches(CgroupThrottle) or ()
    if not any(batch.rows for batch in batches):
        return not_applicable(NAME, "no cgroup here has run under a CPU quota")
    moved = _moved(batches)
    if not moved:
        return _seen_once(batches)
    worst = [found for each in moved.values() if (found := _worst(each)) is not None]
    noted = sorted(
        (each for each in worst if each.is_noted),
        key=lambda each: (not each.hurts, -each.stopped, each.path),
    )
    if not noted:
        return _free(window, worst)
    return _throttled(window, noted, _around(moved[noted[0].path], noted[0]))


def _moved(batches: Sequence[Batch[CgroupThrottle]]) -> dict[str, list[Step[CgroupThrottle]]]:
    """Every cgroup's steps between neighbouring readings, from its birth on where that was seen."""
    moved: dict[str, list[Step[CgroupThrottle]]] = defaultdict(list)
    for earlier, later in pairwise(batches):
        if not later.follows or later.mono_s <= earlier.mono_s:
            continue
        known = {row.path: row for row in earlier.rows}
        for row in later.rows:
            before = known.get(row.path) or _born(row, later.mono_s - earlier.mono_s)
            if before is not None:
                moved[row.path].append(Step(earlier.mono_s, later.mono_s, before, row))
    return moved


def _born(row: CgroupThrottle, within_s: float) -> CgroupThrottle | None:
    """What a cgroup that was not there `within_s` ago had counted by then: nothing.

    `None` where it has counted more than can have been since: then it had a quota before, that was
    taken from it and given back, and how much of it is new is not known.
    """
    if row.periods * _PERIOD_S > within_s + _PERIOD_S:
        return None
    return CgroupThrottle(row.path, 0, 0, 0)


def _seen_once(batches: Sequence[Batch[CgroupThrottle]]) -> Finding:
    """No cgroup was read twice: one that is still there may have been stopped at any time before,
    one that is gone was not there for long."""
    if any(row.throttled for row in batches[-1].rows):
        lacking = Missing("two readings of cpu.stat", "sexton diagnose --seconds 10")
        return unknown(NAME, "one reading cannot tell when a cgroup was throttled", (lacking,))
    rows = {row.path: row for batch in batches for row in batch.rows}
    most = max(rows.values(), key=lambda row: (row.throttled, row.path))
    share = 100 * most.throttled / most.periods
    told = "in one reading only: too short to be stopped for long"
    return Finding(
        NAME,
        Verdict.ABSENT,
        Severity.INFO,
        f"{count(len(rows), 'cgroup')} with a CPU quota, "
        + (told if most.throttled else "none ever throttled"),
        evidence=(
            Evidence(
                f"throttled periods of {most.path}",
                f"{share:.0f} % ({most.throttled:,} of {most.periods:,})",
                f"< {NOTED.value:.0f} %",
                "periods since it was made",
                "cpu.stat",
                share,
                "it was made again under another name, and stopped there",
            ),
        ),
    )


def _worst(found: Sequence[Step[CgroupThrottle]]) -> _Stretch | None:
    """The stretch that hurts most, or in which the cgroup was stopped for the longest time."""
    best: _Stretch | None = None
    first = 0
    for last, step in enumerate(found):
        if last and found[last - 1].end_mono != step.start_mono:
            first = last  # readings between the two are missing
        while first < last and step.end_mono - found[first].start_mono > STRETCH.value:
            first += 1
        made = _stretch(found[first : last + 1])
        if best is None or (made.hurts, made.stopped_s) > (best.hurts, best.stopped_s):
            best = made
    return best


def _stretch(some: Sequence[Step[CgroupThrottle]]) -> _Stretch:
    return _Stretch(
        some[0].after.path,
        some[0].start_mono,
        some[-1].end_mono,
        # A counter that went back is of a cgroup made anew under the same path.
        sum(each.delta("periods") or 0 for each in some),
        sum(each.delta("throttled") or 0 for each in some),
        sum(each.delta("throttled_us") or 0 for each in some) / 1e6,
    )


def _around(found: Sequence[Step[CgroupThrottle]], worst: _Stretch) -> tuple[float, float]:
    """From when to when it went on without a break, the worst stretch among it."""
    start, end = worst.start, worst.end
    for each in reversed(found):
        if each.end_mono == start and _stretch((each,)).share >= NOTED.value:
            start = each.start_mono
    for each in found:
        if each.start_mono == end and _stretch((each,)).share >= NOTED.value:
            end = each.end_mono
    return start, end


def _throttled(window: Window, noted: Sequence[_Stretch], span: tuple[float, float]) -> Finding:
    worst = noted[0]
    unit = _unit(window, worst.path)
    whose = f" ({unit})" if unit is not None and not worst.path.endswith(unit) else ""
    others = f" (and {count(len(noted) - 1, 'more cgroup')})" if len(noted) > 1 else ""
    units = dict.fromkeys(_unit(window, each.path) for each in noted)
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING if worst.hurts else Severity.INFO,
        f"{worst.path}{whose}{others} was stopped by its CPU quota in {worst.share:.0f} % of its"
        f" periods for {duration(worst.seconds)}; its cores waited"
        f" {duration(worst.stopped_s)} for it, all together",
        entities={
            "cgroup": tuple(each.path for each in noted),
            "unit": tuple(each for each in units if each is not None),
        },
        start=window.wall(span[0]),
        end=window.wall(span[1]),
        evidence=tuple(line for each in noted[:_SHOWN] for line in _evidence(each)),
    )


def _unit(window: Window, path: str) -> str | None:
    """The unit whose cgroup it is, or below whose cgroup it lies."""
    for row in window.latest(Unit) or ():
        if row.cgroup and row.cgroup.rstrip("/") == path:
            return row.name
    return unit_of(path)


def _evidence(each: _Stretch) -> Iterable[Evidence]:
    yield Evidence(
        f"throttled periods of {each.path}",
        f"{each.share:.0f} % ({each.throttled:,} of {each.periods:,})",
        f"< {NOTED.value:.0f} %",
        f"periods in {duration(each.seconds)}",
        "cpu.stat",
        each.share,
        "the quota is meant to hold it back",
    )
    yield Evidence(
        f"time that cores of {each.path} waited for its next period",
        f"{each.stopped_s:.1f} s",
        f"< {STOPPED.value:.0f} % of the time",
        f"s, all cores together, in {duration(each.seconds)}",
        "cpu.stat",
        each.stopped_s,
        "many threads were stopped at once: the time is their cores' sum",
    )


def _free(window: Window, worst: Sequence[_Stretch]) -> Finding:
    most = max(worst, key=lambda each: (each.share, each.path))
    text = f"{count(len(worst), 'cgroup')} with a CPU quota"
    if most.throttled:
        text += (
            f"; most often throttled {most.path}, {most.throttled:,} of {most.periods:,} periods"
        )
    else:
        text += ", none throttled"
    return Finding(
        NAME,
        Verdict.ABSENT,
        Severity.INFO,
        text,
        evidence=(
            Evidence(
                f"throttled periods of {most.path}",
                f"{most.share:.0f} % ({most.throttled:,} of {most.periods:,})",
                f"< {NOTED.value:.0f} %",
                f"periods in {duration(most.seconds)}",
                "cpu.stat",
                most.share,
                f"it was throttled outside these {duration(window.seconds)}",
            ),
        ),
    )
