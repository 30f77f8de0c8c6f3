"""Did it help? One window after the apply, compared with what was measured before.

Each criterion is *met*, *not met* or *unknown*. Without an earlier measurement it is judged on its
own, and the note says so. Zombies freed are counted, and so are those that remain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sexton.cure import measures
from sexton.cure.journal import STOPPED as STOPPED_EARLY
from sexton.cure.journal import Run
from sexton.cure.remedy import detail_lines, remedy
from sexton.detect.growth import ENOUGH
from sexton.detect.registry import Threshold
from sexton.model.plan import Plan
from sexton.model.rows.unit import Unit
from sexton.model.text import count, printable
from sexton.model.text import seconds as duration
from sexton.model.window import Window

SAME = Threshold("same", 20, "% more", "normal variation between two windows")
SCANNED = Threshold("scanned", 1_000, "pages/s", "4 MB/s, as much as caching a log file takes")
STOPPED = Threshold("stopped", 5, "ms/s", "0.5 % of one core")
DOWN = Threshold("down", 10, "% of a core", "below that a core is not busy in the kernel")


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
    """`freed` is what the apply itself counted; `dead_now` is how many are dying now."""

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


def verify(run: Run, window: Window) -> Verified:
    """Compare the window with the plan's baseline and the readings at the start of the apply."""
    plan = run.plan
    before = plan.baseline
    cores, units = saturated_cores(plan), targets(run)
    now = measures.measure(window, cores, units)
    at_apply = run.start.get(measures.DYING, before.get(measures.DYING))
    results = [_slope(before, window), *(_restarts(window, now, unit) for unit in units)]
    if any(remedy(step.remedy).RECLAIMS for step in run.steps):
        results.insert(0, _fewer(at_apply, now.get(measures.DYING)))
    results += [_core(before, now, core) for core in cores]
    results.append(
        _not_up("CPU throttling", measures.THROTTLED, (before, now), ("ms/s", STOPPED, "cpu.stat"))
    )
    results.append(
        _not_up(
            "direct reclaim",
            measures.RECLAIM,
            (before, now),
            ("pages/s", SCANNED, "/proc/vmstat pgscan"),
        )
    )
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
    """What the plan was for: zombies are freed, and by more than what comes and goes anyway."""
    what, source = "dying memory cgroups", "census"
    earlier = _number(before, "{:,.0f}")
    if before is None or now is None:
        return CriterionResult(what, earlier, _number(now, "{:,.0f}"), Met.UNKNOWN, source)
    gone = float(before) - now
    met = Met.YES if gone >= min(ENOUGH.value, float(before) / 2) else Met.NO
    note = "" if met is Met.YES else "the plan was to free them"
    return CriterionResult(what, earlier, f"{now:,.0f}", met, source, note)


def _slope(before: Mapping[str, Any], window: Window) -> CriterionResult:
    what, source = "zombies per minute", "census, least squares"
    earlier = _number(before.get(measures.SLOPE), "{:+.1f}")
    points = measures.dying_over(window)
    slope = measures.slope_of(points)
    if slope is None:
        why = measures.why_uncounted(window)
        return CriterionResult(what, earlier, "?", Met.UNKNOWN, source, f"not counted: {why}")
    change = points[-1][1] - points[0][1]
    note = f"{points[0][1]:,} to {points[-1][1]:,} in {duration(points[-1][0] - points[0][0])}"
    within = 0 < change < ENOUGH.value
    if within:
        note += f"; fewer than {ENOUGH.value:.0f} is noise"
    good = slope <= 0 or change < ENOUGH.value
    return CriterionResult(
        what, earlier, f"{slope * 60:+.1f}", Met.YES if good else Met.NO, source, note
    )


def _restarts(window: Window, now: Mapping[str, float], unit: str) -> CriterionResult:
    what, source = f"restarts of {printable(unit)}", "systemd NRestarts"
    if not window.read(Unit):
        return CriterionResult(
            what, "crash loop", "?", Met.UNKNOWN, source, "systemd did not answer"
        )
    counted = now.get(measures.RESTARTS.format(unit))
    if counted is None:  # systemd unloads a masked unit that nothing references
        note = "no longer loaded by systemd: not running"
        return CriterionResult(what, "crash loop", "0", Met.YES, source, note)
    met = Met.YES if counted == 0 else Met.NO
    return CriterionResult(what, "crash loop", f"{counted:.0f}", met, source)


def _core(before: Mapping[str, Any], now: Mapping[str, float], core: int) -> CriterionResult:
    what, source = f"core {core} system time", "/proc/stat"
    name = measures.CORE.format(core)
    earlier, later = before.get(name), now.get(name)
    if later is None:
        return CriterionResult(what, _number(earlier, "{:.0f} %"), "?", Met.UNKNOWN, source)
    if earlier is None:
        good, note = later < DOWN.value, f"not measured before; under {DOWN.value:.0f} % passes"
    else:
        good, note = later < float(earlier) or later < DOWN.value, ""
    met = Met.YES if good else Met.NO
    return CriterionResult(what, _number(earlier, "{:.0f} %"), f"{later:.0f} %", met, source, note)


def _not_up(
    what: str,
    name: str,
    sides: tuple[Mapping[str, Any], Mapping[str, float]],
    about: tuple[str, Threshold, str],
) -> CriterionResult:
    unit, little, source = about
    earlier, later = sides[0].get(name), sides[1].get(name)
    before = _number(earlier, "{:,.1f} " + unit)
    if later is None:
        return CriterionResult(what, before, "?", Met.UNKNOWN, source)
    allowed = max(float(earlier or 0) * (1 + SAME.value / 100), little.value)
    met = Met.YES if later <= allowed else Met.NO
    return CriterionResult(
        what, before, f"{later:,.1f} {unit}", met, source, f"limit {allowed:,.0f} {unit}"
    )


def _resets(now: Mapping[str, float]) -> CriterionResult:
    what, source = "NIC resets", "ethtool -S, kernel log"
    counted = now.get(measures.RESETS)
    if counted is None:
        return CriterionResult(
            what,
            "",
            "?",
            Met.UNKNOWN,
            source,
            "neither kernel log nor counters could be read (try sudo)",
        )
    return CriterionResult(what, "", f"{counted:.0f} new", Met.NO if counted else Met.YES, source)


def _steps(run: Run) -> CriterionResult:
    """An apply that stopped early is not a success, even if the node is calm."""
    done = sum(record.outcome is not None for record in run.records)
    now = f"{done} of {len(run.steps)}"
    note = f"stopped: {printable(run.ended_why)}" if run.ended_why else ""
    return CriterionResult("steps applied", "", now, Met.NO, "journal of this apply", note)


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
