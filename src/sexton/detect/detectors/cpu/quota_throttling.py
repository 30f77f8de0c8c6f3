"""A cgroup runs into its CPU quota and is stopped until its next period begins.

**What is seen.** Per cgroup with a quota (`cpu.stat`): the share of its periods that were throttled
(`nr_throttled` of `nr_periods`, 100 ms each by default), and its throttled time summed over cores,
in the worst stretch of up to 30 s. Reported with its unit.

**Why it hurts.** All its threads stop for the rest of every throttled period, including those that
hold a lock or answer a heartbeat: a job that waits for it seems to hang while the node's cores are
idle. This distinguishes it from a held core: no core is at 100 % system time, and nothing outside
that cgroup waits.

**What would make it wrong.** Quotas are set on purpose, and a batch job may be throttled all day by
design. A few throttled periods are normal, and so are many while a program starts: these are absent
or *info*. Throttled time is summed over cores, so with many threads it exceeds wall time; compare
the share of periods instead. Counters restart when a cgroup is recreated. A cgroup that lived for
less than the interval between two readings is judged by its counters since the previous reading;
one that was removed before its second reading cannot have been throttled for long. A parent's quota
throttles its children, and only the parent counts it.

**Check by hand.** ``cat /sys/fs/cgroup/PATH/cpu.stat`` twice (v1: ``/sys/fs/cgroup/cpu/PATH``) and
``cpu.max`` (v1: ``cpu.cfs_quota_us``); ``systemctl show -p CPUQuotaPerSecUSec UNIT``.

**What to do.** Raise or remove the limit (``systemctl set-property UNIT CPUQuota=``, a pod's
``resources.limits.cpu``), or give it fewer threads: a runtime that counts the node's 96 cores
starts 96 workers on a quota of two. Reclaim and page faults do not cause throttling; if they
rise together, they have a common cause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from shlex import quote
from typing import NamedTuple

import numpy as np

from sexton.detect.detectors.memory.memory_pressure import SHORTAGE
from sexton.detect.findings import (
    absent,
    and_more,
    names,
    not_applicable,
    not_seen,
    too_few_readings,
)
from sexton.detect.registry import READS, Advice, Averages, Stage, Threshold, detector
from sexton.detect.runs import around
from sexton.detect.stems import unit_of
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.cgroup import CgroupThrottle, Mount
from sexton.model.rows.unit import Unit
from sexton.model.text import count, printable, shorten
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.rates import (
    Amount,
    Born,
    Stepper,
    Steps,
    counts_on,
    hidden_s,
    lasts,
    steps_of,
    stretches,
    sums,
)

NAME = "quota_throttling"
#: A pod's path has 140 characters; its ends distinguish it.
_PATH = 60

OFTEN = Threshold(
    "often", 10, "throttled periods in a stretch", "one second in total; fewer are not noticed"
)
NOTED = Threshold(
    "noted", 10, "% of its periods", "below this only the slowest requests take longer"
)
MOSTLY = Threshold(
    "mostly", 50, "% of its periods", "from here on it is throttled more often than not"
)
STOPPED = Threshold(
    "stopped",
    25,
    "% of the time, its cores together",
    "a sidecar that wakes up, bursts and is throttled waits far less",
)
LASTING = Threshold("lasting", 10, "s in a row", "a starting program is throttled for some seconds")
STRETCH = Threshold(
    "stretch", 30, "s", "longer than a program start, short enough not to average throttling away"
)
_LIMITS = (OFTEN, NOTED, MOSTLY, STOPPED, LASTING, STRETCH)
_COUNTERS = ("periods", "throttled", "throttled_us")
#: Cgroups that are looked at closely: those stopped longest.
_MOST = 50
#: Stretches of each that are weighed one by one.
_WEIGHED = 50
_SHOWN = 8
#: Ten periods a second are the kernel's default, and by far the commonest.
_BORN = Born("periods", 10)


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
        """Per cent of the time; more than 100 if it was stopped on several cores."""
        return 100 * self.stopped_s / self.seconds

    @property
    def often(self) -> str:
        where = shorten(self.path, _PATH)
        return f"most often throttled {where}, {self.throttled:,} of {self.periods:,} periods"

    @property
    def is_noted(self) -> bool:
        return self.throttled >= OFTEN.value and self.share >= NOTED.value

    @property
    def hurts(self) -> bool:
        long = lasts(self.seconds, LASTING.value)
        return long and self.share >= MOSTLY.value and self.stopped >= STOPPED.value


def _hidden_s(window: Window) -> float:
    """Seconds without a reading in which a cgroup was throttled often enough, and stopped for long
    enough, to hurt."""
    if not window.row_count(CgroupThrottle):
        return 0.0
    moved = _moved(window, _longest(window))
    if not len(moved.things):
        return 0.0
    stopped_s, throttled = (
        np.nan_to_num(moved.moved[name]) for name in ("throttled_us", "throttled")
    )
    hurts = np.minimum(
        stopped_s / 1e6 * 100 / STOPPED.value / LASTING.value, throttled / OFTEN.value
    )
    return hidden_s(window, (moved.start, moved.end), hurts.max(axis=0))


def _ruled_out(window: Window) -> str:
    if _hidden_s(window):
        return ""
    if window.read(CgroupThrottle) and not window.row_count(CgroupThrottle):
        return "CPU quota"
    worst = _worst_of_each(window)
    if not worst:
        return ""
    most = _most_often(worst)
    return f"CPU quota ({printable(most.often)})" if most.throttled else "CPU quota"


def _look(finding: Finding, window: Window) -> list[Step]:
    units = finding.entities.get("unit", ())
    why = "see its CPU quota; raise it, or run fewer threads"
    if units:
        return [Step(f"systemctl show -p CPUQuotaPerSecUSec {quote(units[0])}", why, READS)]
    path = next(iter(finding.entities.get("cgroup", ())), "")
    first = [mount for mount in window.latest(Mount) or () if "cpu" in mount.super_options]
    if first:
        top = min((mount.mount_point for mount in first), key=len)
        return [Step(f"cat {quote(printable(f'{top}{path}/cpu.cfs_quota_us'))}", why, READS)]
    return [Step(f"cat {quote(f'/sys/fs/cgroup{path}/cpu.max')}", why, READS)]


@detector(
    needs=(CgroupThrottle,),
    thresholds=_LIMITS,
    title="CPU quota throttling",
    story="A cgroup ran out of its CPU quota",
    lanes=("cores",),
    about=("cgroup", "unit"),
    answers={"unit": 4, "cgroup": 4},
    ruled_out=_ruled_out,
    advice=Advice(Stage.LOOK, _look),
    rises_with=SHORTAGE,
    averages=Averages((CgroupThrottle,), LASTING, "a cgroup stopped by its quota"),
)
def detect(window: Window) -> Finding:
    """Cgroups that their quota throttles, the one throttled longest first."""
    if not window.row_count(CgroupThrottle):
        return not_applicable(NAME, "no cgroup here has run under a CPU quota")
    worst = _worst_of_each(window)
    if not worst:
        return _seen_once(window)
    noted = sorted(
        (stretch for stretch in worst if stretch.is_noted),
        key=lambda stretch: (not stretch.hurts, -stretch.stopped, stretch.path),
    )
    if not noted:
        return _free(window, worst)
    return _throttled(window, noted, _around(_moved(window, {noted[0].path}), noted[0]))


def _moved(window: Window, paths: Collection[str] | None = None) -> Steps:
    """How far the counters of cgroups moved between readings, from creation on if that was seen.

    A new cgroup whose counters are too high for its age had a quota before that was removed and
    set again.
    """
    read = window.columns(
        CgroupThrottle, _COUNTERS, None if paths is None else lambda key: key[0] in paths
    )
    return steps_of(read, _BORN, over_gaps=counts_on(window))


class Stopped(NamedTuple):
    """For how many µs each cgroup was stopped by its quota in the known steps, by path, and the
    seconds of all steps of which it is known."""

    us: dict[str, float]
    seconds: float

    def ratio(self, path: str) -> float:
        """Per second; more than 1 if it was stopped on several cores."""
        return Amount(self.us[path] / 1e6, self.seconds).rate


def stopped(window: Window) -> Stopped:
    """Hours of many cgroups are read piece by piece."""
    us: dict[str, float] = {}
    seconds = 0.0
    over_gaps = counts_on(window)
    stepper = Stepper(_BORN, over_gaps=over_gaps)
    for piece in window.columns(CgroupThrottle, _COUNTERS):
        steps = stepper.add(piece)
        read, moved = piece.values["throttled_us"], steps.moved["throttled_us"]
        known = ~np.isnan(moved)
        last = len(piece.mono) - len(steps.end)
        follows = piece.follows[last:] | over_gaps
        nobody = follows & np.isnan(read[:, last:]).all(axis=0)  # had a quota
        seconds += float(steps.seconds[nobody | known.any(axis=0)].sum())
        total = np.nansum(moved, axis=1)
        for row in np.flatnonzero(known.any(axis=1)).tolist():
            path = str(steps.things[row][0])
            us[path] = us.get(path, 0.0) + float(total[row])
    return Stopped(us, seconds)


def _worst_of_each(window: Window) -> list[_Stretch]:
    """For every cgroup the stretch that hurts most, else in which it was stopped longest.

    Only those stopped longest are read whole.
    """
    limits = tuple(limit.value for limit in _LIMITS)
    return window.keep((NAME, limits), lambda: list(_each(window)))


def _most_often(worst: Sequence[_Stretch]) -> _Stretch:
    return max(worst, key=lambda stretch: (stretch.share, stretch.path))


def _longest(window: Window) -> frozenset[str]:
    """Those stopped longest: only these are read whole."""

    def make() -> frozenset[str]:
        us = stopped(window).us
        return frozenset(sorted(us, key=lambda path: (-us[path], path))[:_MOST])

    return window.keep((NAME, "longest"), make)


def _each(window: Window) -> Iterator[_Stretch]:
    moved = _moved(window, _longest(window))
    for row, thing in enumerate(moved.things):
        yield _worst(moved, row, str(thing[0]))


def _worst(moved: Steps, row: int, path: str) -> _Stretch:
    # A counter that went back belongs to a new cgroup of the same path: skip that step.
    known = ~np.isnan(np.stack([array[row] for array in moved.moved.values()])).all(axis=0)
    start, end = moved.start[known], moved.end[known]
    first = stretches(start, end, STRETCH.value)
    periods, throttled, stopped_us = (
        sums(moved.moved[name][row][known], first) for name in _COUNTERS
    )
    some = np.argsort(-stopped_us, kind="stable")[:_WEIGHED].tolist()
    some += np.argsort(-throttled, kind="stable")[:_WEIGHED].tolist()
    made = (
        _Stretch(
            path,
            float(start[first[at]]),
            float(end[at]),
            int(periods[at]),
            int(throttled[at]),
            float(stopped_us[at]) / 1e6,
        )
        for at in sorted(set(some))
    )
    return max(made, key=lambda part: (part.hurts, part.stopped_s))


def _seen_once(window: Window) -> Finding:
    """No cgroup was read twice: one that still exists may have been throttled at any time before,
    one that is gone did not exist for long."""
    if any(row.throttled for row in window.latest(CgroupThrottle) or ()):
        what = "two readings of cpu.stat"
        return too_few_readings(NAME, "one reading does not show when a cgroup was throttled", what)
    rows = {row.path: row for row in window.all(CgroupThrottle) or ()}
    most = max(rows.values(), key=lambda row: (row.throttled, row.path))
    share = 100 * most.throttled / most.periods
    text = "none ever throttled"
    if most.throttled:
        text = "in one reading only: too short-lived to be throttled for long"
    periods = Evidence(
        f"throttled periods of {most.path}",
        f"{share:.0f} % ({most.throttled:,} of {most.periods:,})",
        f"< {NOTED.value:.0f} %",
        "periods since it was created",
        "cpu.stat",
        share,
        "it was recreated under another name and throttled there",
    )
    return absent(NAME, f"{count(len(rows), 'cgroup')} with a CPU quota, {text}", [periods])


def _around(moved: Steps, worst: _Stretch) -> tuple[float, float]:
    """Start and end of the unbroken throttling that includes the worst stretch."""
    periods, throttled = (np.nan_to_num(moved.moved[name][0]) for name in _COUNTERS[:2])
    often = (periods > 0) & (100 * throttled >= NOTED.value * periods)
    often |= (moved.start >= worst.start) & (moved.end <= worst.end)
    return around(moved, often, worst.start, worst.end)


def _throttled(window: Window, noted: Sequence[_Stretch], span: tuple[float, float]) -> Finding:
    worst = noted[0]
    unit = _unit(window, worst.path)
    whose = f" ({unit})" if unit is not None and not worst.path.endswith(unit) else ""
    others = and_more(noted, "cgroup")
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING if worst.hurts else Severity.INFO,
        f"{worst.path}{whose}{others} was throttled by its CPU quota in {worst.share:.0f} % of its"
        f" periods for {duration(worst.seconds)}; throttled time summed over its cores:"
        f" {duration(worst.stopped_s)}",
        entities={
            "cgroup": tuple(stretch.path for stretch in noted),
            "unit": names(_unit(window, stretch.path) for stretch in noted),
        },
        start=window.wall(span[0]),
        end=window.wall(span[1]),
        evidence=tuple(line for stretch in noted[:_SHOWN] for line in _evidence(stretch)),
    )


def _unit(window: Window, path: str) -> str | None:
    """The unit whose cgroup it is, or below whose cgroup it lies."""
    for row in window.latest(Unit) or ():
        if row.cgroup and row.cgroup.rstrip("/") == path:
            return row.name
    return unit_of(path)


def _periods(stretch: _Stretch, wrong_if: str) -> Evidence:
    return Evidence(
        f"throttled periods of {stretch.path}",
        f"{stretch.share:.0f} % ({stretch.throttled:,} of {stretch.periods:,})",
        f"< {NOTED.value:.0f} %",
        f"periods in {duration(stretch.seconds)}",
        "cpu.stat",
        stretch.share,
        wrong_if,
    )


def _evidence(stretch: _Stretch) -> Iterable[Evidence]:
    yield _periods(stretch, "the quota is meant to limit it")
    yield Evidence(
        f"throttled time of {stretch.path}",
        f"{stretch.stopped_s:.1f} s",
        f"< {STOPPED.value:.0f} % of the time",
        f"s, all cores together, in {duration(stretch.seconds)}",
        "cpu.stat",
        stretch.stopped_s,
        "many threads were throttled at once: the time is summed over their cores",
    )


def _free(window: Window, worst: Sequence[_Stretch]) -> Finding:
    most = _most_often(worst)
    text = f"{count(len(worst), 'cgroup')} with a CPU quota"
    text += f"; {most.often}" if most.throttled else ", none throttled"
    outside = f"it was throttled outside these {duration(window.seconds)}"
    lacking = not_seen("whether a cgroup was stopped by its quota", _hidden_s(window))
    return absent(NAME, text, [_periods(most, outside)], lacking)
