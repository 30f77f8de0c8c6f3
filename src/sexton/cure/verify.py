"""Compares one window after an apply with what was measured before: did it help?

Each criterion is *met*, *not met* or *unknown*. Without an earlier measurement, only the new value
is judged, with a note. Freed and remaining zombies are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from sexton.cure import measures
from sexton.cure.journal import STOPPED as STOPPED_EARLY
from sexton.cure.journal import Run
from sexton.cure.remedies import remove_empty_cgroups
from sexton.cure.remedy import detail_lines, remedy
from sexton.detect.detectors.cpu.saturated_core import holds
from sexton.detect.growth import ENOUGH, growth
from sexton.detect.registry import Threshold
from sexton.model.plan import Plan
from sexton.model.rows.unit import Unit
from sexton.model.text import count, printable
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.cores import Hold
from sexton.series.restarts import COUNTED_BY
from sexton.series.steps import rise

SAME = Threshold("same", 20, "% more", "normal variation between two windows")
SCANNED = Threshold("scanned", 1_000, "pages/s", "4 MB/s, as much as caching a log file takes")
STOPPED = Threshold("stopped", 5, "ms/s", "0.5 % of one core")
DOWN = Threshold("down", 10, "% of a core", "below that a core is not busy in the kernel")
HALVED = Threshold("halved", 50, "% of before", "between two windows kernel time varies by less")


class _Rate(NamedTuple):
    """A rate that must not rise; up to `little` is always allowed."""

    what: str
    measure: str
    unit: str
    little: Threshold
    read_from: str


_THROTTLING = _Rate("CPU throttling", measures.THROTTLED, "ms/s", STOPPED, "cpu.stat")
_RECLAIM = _Rate("direct reclaim", measures.RECLAIM, "pages/s", SCANNED, "/proc/vmstat pgscan")


class Met(StrEnum):
    YES = "met"
    NO = "not met"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CriterionResult:
    """One criterion: the value before and now, and whether it is met."""

    what: str
    before: str
    now: str
    met: Met
    read_from: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of a verify. `freed` has the lines of the steps that freed zombies; `dead_before` and
    `dead_now` count dying cgroups."""

    run: str
    seconds: float
    results: tuple[CriterionResult, ...]
    dead_before: int | None
    dead_now: int | None
    freed: tuple[str, ...]

    @property
    def exit(self) -> int:
        states = {result.met for result in self.results}
        if Met.NO in states:
            return 1
        return 3 if Met.UNKNOWN in states or not states else 0


def targets(run: Run) -> tuple[str, ...]:
    """Units that the apply stopped."""
    steps = (step for step in run.steps if "unit" in step.parameters)
    return tuple(dict.fromkeys(str(step.parameters["unit"]) for step in steps))


def saturated_cores(plan: Plan) -> tuple[int, ...]:
    """Cores that the diagnosis found saturated."""
    return tuple(int(part) for part in str(plan.baseline.get("cores", "")).split())


def verify(run: Run, window: Window, empty_left: int | None = None) -> Verified:
    """Compare the window with the plan's baseline and the readings at the start of the apply.

    `empty_left`: how many of the cgroups that it was to remove are still there."""
    plan = run.plan
    before = plan.baseline
    cores, units = saturated_cores(plan), targets(run)
    now = measures.measure(window, cores, units)
    at_apply = run.start.get(measures.DYING, before.get(measures.DYING))
    results = [_rate(before, window), *(_restarts(window, now, unit) for unit in units)]
    if any(remedy(step.remedy).RECLAIMS for step in run.steps):
        results.insert(0, _fewer(at_apply, now.get(measures.DYING)))
    removing = [step for step in run.steps if step.remedy == remove_empty_cgroups.NAME]
    if removing:
        planned = sum(map(remove_empty_cgroups.planned, removing))
        results.insert(0, _gone(planned, empty_left))
    held = {hold.core: hold for hold in holds(window)}
    results += [_core(before, now, core, held.get(core)) for core in cores]
    results += [_not_up(rate, before, now) for rate in (_THROTTLING, _RECLAIM)]
    results.append(_resets(now))
    if run.ended == STOPPED_EARLY:
        results.append(_steps(run))
    return Verified(
        run.id,
        window.seconds,
        tuple(results),
        None if at_apply is None else int(at_apply),
        None if measures.DYING not in now else int(now[measures.DYING]),
        freed_lines(run.freed()),
    )


def freed_lines(outcomes: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The lines reported by each step that freed zombies."""
    return tuple(
        line
        for outcome in outcomes
        if outcome.get("said")
        for line in (printable(str(outcome["said"])), *detail_lines(outcome))
    )


def _fewer(before: Any, now: float | None) -> CriterionResult:
    """Zombies were freed, and more than usual variation explains."""
    what, source = "dying memory cgroups", "census"
    earlier = _number(before, "{:,.0f}")
    if before is None or now is None:
        return CriterionResult(what, earlier, _number(now, "{:,.0f}"), Met.UNKNOWN, source)
    met = _met(measures.are_fewer(float(before), rise(now, float(before))))
    note = "" if met is Met.YES else "the plan was to free them"
    return CriterionResult(what, earlier, f"{now:,.0f}", met, source, note)


def _gone(planned: int, left: int | None) -> CriterionResult:
    """The cgroups that the plan was to remove are gone."""
    what, source = "empty cgroups of the plan", "their directories"
    if left is None:
        return CriterionResult(what, f"{planned:,}", "?", Met.UNKNOWN, source)
    note = "the plan was to remove them" if left else ""
    return CriterionResult(what, f"{planned:,}", f"{left:,}", _met(not left), source, note)


def _rate(before: Mapping[str, Any], window: Window) -> CriterionResult:
    what, source = "zombies per minute", "census, first and last"
    earlier = _number(before.get(measures.RATE), "{:+.1f}")
    moved = growth(window)
    if moved is None:
        why = measures.why_uncounted(window)
        return CriterionResult(what, earlier, "?", Met.UNKNOWN, source, f"not counted: {why}")
    note = f"{moved.first:,} to {moved.last:,} in {duration(moved.seconds)}"
    if 0 < moved.by < ENOUGH.value:
        note += f"; fewer than {ENOUGH.value:.0f} is noise"
    now = f"{moved.rate * 60:+.1f}"
    met = _met(moved.by < ENOUGH.value)
    if met is Met.YES and _is_too_short(before, moved.seconds):
        met, note = Met.UNKNOWN, f"{note}; too short at the earlier rate: watch longer"
    return CriterionResult(what, earlier, now, met, source, note)


def _is_too_short(before: Mapping[str, Any], seconds: float) -> bool:
    """Would so short a window show the growth from before the fix?"""
    rate, watched = before.get(measures.RATE), before.get(measures.SECONDS)
    if rate is None or watched is None or float(rate) * float(watched) / 60 < ENOUGH.value:
        return False  # there was none
    return float(rate) * seconds / 60 < ENOUGH.value


def _restarts(window: Window, now: Mapping[str, float], unit: str) -> CriterionResult:
    what, source = f"restarts of {printable(unit)}", COUNTED_BY
    if not window.read(Unit):
        return CriterionResult(
            what, "crash loop", "?", Met.UNKNOWN, source, "systemd did not answer"
        )
    counted = now.get(measures.RESTARTS.format(unit))
    if counted is None:  # systemd unloads a masked unit that nothing references
        note = "no longer loaded by systemd: not running"
        return CriterionResult(what, "crash loop", "0", Met.YES, source, note)
    return CriterionResult(what, "crash loop", f"{counted:.0f}", _met(counted == 0), source)


def _core(
    before: Mapping[str, Any], now: Mapping[str, float], core: int, held: Hold | None
) -> CriterionResult:
    """Not held any more, and at most half as busy in the kernel: a long window hides a short hold
    in its mean, and a core at 94 % instead of 95 % is as stuck as before."""
    what, source = f"core {core} kernel time", "/proc/stat"
    name = measures.CORE.format(core)
    earlier, later = before.get(name), now.get(name)
    shown = _number(earlier, "{:.0f} %")
    if later is None:
        return CriterionResult(what, shown, "?", Met.UNKNOWN, source)
    value, note = f"{later:.0f} %", f"under {DOWN.value:.0f} % passes"
    good = later < DOWN.value
    if earlier is None:
        note = f"not measured before; {note}"
    else:
        good = good or later <= float(earlier) * HALVED.value / 100
        note = "" if good else f"half of before passes; {note}"
    if held is not None:
        good, note = False, f"held in the kernel for {duration(held.seconds)}"
    return CriterionResult(what, shown, value, _met(good), source, note)


def _not_up(rate: _Rate, before: Mapping[str, Any], now: Mapping[str, float]) -> CriterionResult:
    earlier, later = before.get(rate.measure), now.get(rate.measure)
    shown = _number(earlier, "{:,.1f} " + rate.unit)
    if later is None:
        return CriterionResult(rate.what, shown, "?", Met.UNKNOWN, rate.read_from)
    allowed = max(float(earlier or 0) * (1 + SAME.value / 100), rate.little.value)
    value, limit = f"{later:,.1f} {rate.unit}", f"limit {allowed:,.0f} {rate.unit}"
    return CriterionResult(rate.what, shown, value, _met(later <= allowed), rate.read_from, limit)


def _resets(now: Mapping[str, float]) -> CriterionResult:
    what, source = "NIC resets", "ethtool -S, kernel log"
    counted = now.get(measures.RESETS)
    if counted is None:
        note = "neither kernel log nor counters could be read (try sudo)"
        return CriterionResult(what, "", "?", Met.UNKNOWN, source, note)
    return CriterionResult(what, "", f"{counted:.0f} new", _met(not counted), source)


def _steps(run: Run) -> CriterionResult:
    """An apply that stopped early is not a success, even if the node is calm."""
    done = sum(record.outcome is not None for record in run.records)
    now = f"{done} of {len(run.steps)}"
    note = f"stopped: {printable(run.ended_why)}" if run.ended_why else ""
    return CriterionResult("steps applied", "", now, Met.NO, "journal of this apply", note)


def _met(good: bool) -> Met:
    return Met.YES if good else Met.NO


def _number(value: Any, shape: str) -> str:
    return "?" if value is None else shape.format(float(value))


def heading(found: Verified) -> str:
    """The verdict in one sentence."""
    missed = [result.what for result in found.results if result.met is Met.NO]
    unknown = [result.what for result in found.results if result.met is Met.UNKNOWN]
    if missed:
        return f"{count(len(missed), 'criterion', 'criteria')} not met: {', '.join(missed)}"
    if unknown:
        return f"no criterion failed, but unknown: {', '.join(unknown)}"
    return f"all {count(len(found.results), 'criterion', 'criteria')} met"
