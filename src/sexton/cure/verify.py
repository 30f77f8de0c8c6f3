"""Did it help? One window after the fact, against what was measured before.

Every criterion is *met*, *not met* or *unknown*; where nothing was measured before, it can still be
judged by itself or is left out and said so. What was freed is counted, and so is what was not:
nothing here says "purged".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sexton.cure import measures
from sexton.cure.journal import STOPPED as CUT_SHORT
from sexton.cure.journal import Told
from sexton.cure.remedy import told_in
from sexton.detect.growth import ENOUGH
from sexton.detect.threshold import Threshold
from sexton.model.plan import Plan
from sexton.model.text import count, printable
from sexton.model.text import seconds as duration
from sexton.model.unit import Unit
from sexton.model.window import Window

SAME = Threshold("same", 20, "% more", "rates of two spans differ by that much without a cause")
SCANNED = Threshold("scanned", 1_000, "pages/s", "4 MB a second: what a log file's cache takes")
STOPPED = Threshold("stopped", 5, "ms/s", "half a per cent of one core")
DOWN = Threshold("down", 10, "% of a core", "below it nobody calls a core held")


class Met(StrEnum):
    YES = "met"
    NO = "not met"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Judged:
    """One criterion: what it was before, what it is now, and whether that is good enough."""

    what: str
    before: str
    now: str
    met: Met
    read_from: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Verified:
    """`freed` is what the apply's own counts say, `left` how many are dead now."""

    run: str
    seconds: float
    judged: tuple[Judged, ...]
    dead_before: int | None
    dead_now: int | None
    freed: tuple[str, ...]

    @property
    def exit(self) -> int:
        states = {each.met for each in self.judged}
        if Met.NO in states:
            return 1
        return 3 if Met.UNKNOWN in states or not states else 0


def targets(plan: Plan) -> tuple[str, ...]:
    """The units that a plan stops."""
    return tuple(
        dict.fromkeys(
            str(step.parameters["unit"]) for step in plan.automatic if "unit" in step.parameters
        )
    )


def burnt_cores(plan: Plan) -> tuple[int, ...]:
    """The cores that the diagnosis found held."""
    return tuple(int(each) for each in str(plan.baseline.get("cores", "")).split())


def verify(told: Told, window: Window) -> Verified:
    """Judge the window by what the plan's diagnosis and the apply's first look measured."""
    plan = told.plan
    before = plan.baseline
    cores, units = burnt_cores(plan), targets(plan)
    now = measures.measure(window, cores, units)
    judged = [_slope(before, window), *(_restarts(window, now, unit) for unit in units)]
    judged += [_core(before, now, core) for core in cores]
    judged.append(
        _not_up("CPU throttling", measures.THROTTLED, (before, now), ("ms/s", STOPPED, "cpu.stat"))
    )
    judged.append(
        _not_up(
            "reclaim by tasks",
            measures.RECLAIM,
            (before, now),
            ("pages/s", SCANNED, "/proc/vmstat pgscan"),
        )
    )
    judged.append(_resets(now))
    if told.ended == CUT_SHORT:
        judged.append(_steps(told))
    at_apply = told.start.get(measures.DYING, before.get(measures.DYING))
    return Verified(
        told.id,
        window.seconds,
        tuple(judged),
        None if at_apply is None else int(at_apply),
        None if measures.DYING not in now else int(now[measures.DYING]),
        freed_lines(told.freed()),
    )


def freed_lines(outcomes: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What each freeing step counted itself, and what it told besides."""
    return tuple(
        line
        for each in outcomes
        if each.get("said")
        for line in (printable(str(each["said"])), *told_in(each))
    )


def _slope(before: Mapping[str, Any], window: Window) -> Judged:
    what, source = "zombies a minute", "census, least squares"
    told = _number(before.get(measures.SLOPE), "{:+.1f}")
    points = measures.dying_over(window)
    slope = measures.slope_of(points)
    if slope is None:
        why = measures.why_uncounted(window)
        return Judged(what, told, "?", Met.UNKNOWN, source, f"they could not be counted: {why}")
    change = points[-1][1] - points[0][1]
    note = f"{points[0][1]:,} to {points[-1][1]:,} in {duration(points[-1][0] - points[0][0])}"
    within = 0 < change < ENOUGH.value
    if within:
        note += f"; fewer than {ENOUGH.value:.0f} are chance"
    good = slope <= 0 or change < ENOUGH.value
    return Judged(what, told, f"{slope * 60:+.1f}", Met.YES if good else Met.NO, source, note)


def _restarts(window: Window, now: Mapping[str, float], unit: str) -> Judged:
    what, source = f"restarts of {printable(unit)}", "systemd NRestarts"
    if not window.read(Unit):
        return Judged(what, "loop", "?", Met.UNKNOWN, source, "systemd did not answer")
    counted = now.get(measures.RESTARTS.format(unit))
    if counted is None:  # a masked unit that nothing mentions is forgotten by systemd
        note = "systemd no longer has it loaded: it does not run"
        return Judged(what, "loop", "0", Met.YES, source, note)
    met = Met.YES if counted == 0 else Met.NO
    return Judged(what, "loop", f"{counted:.0f}", met, source)


def _core(before: Mapping[str, Any], now: Mapping[str, float], core: int) -> Judged:
    what, source = f"core {core}, system time", "/proc/stat"
    name = measures.CORE.format(core)
    earlier, later = before.get(name), now.get(name)
    if later is None:
        return Judged(what, _number(earlier, "{:.0f} %"), "?", Met.UNKNOWN, source)
    if earlier is None:
        good, note = later < DOWN.value, f"not measured before; under {DOWN.value:.0f} % is calm"
    else:
        good, note = later < float(earlier) or later < DOWN.value, ""
    met = Met.YES if good else Met.NO
    return Judged(what, _number(earlier, "{:.0f} %"), f"{later:.0f} %", met, source, note)


def _not_up(
    what: str,
    name: str,
    sides: tuple[Mapping[str, Any], Mapping[str, float]],
    about: tuple[str, Threshold, str],
) -> Judged:
    unit, little, source = about
    earlier, later = sides[0].get(name), sides[1].get(name)
    told = _number(earlier, "{:,.1f} " + unit)
    if later is None:
        return Judged(what, told, "?", Met.UNKNOWN, source)
    allowed = max(float(earlier or 0) * (1 + SAME.value / 100), little.value)
    met = Met.YES if later <= allowed else Met.NO
    return Judged(
        what, told, f"{later:,.1f} {unit}", met, source, f"allowed: at most {allowed:,.0f} {unit}"
    )


def _resets(now: Mapping[str, float]) -> Judged:
    what, source = "resets of an interface", "ethtool -S, kernel log"
    counted = now.get(measures.RESETS)
    if counted is None:
        return Judged(what, "", "?", Met.UNKNOWN, source, "neither log nor counters (sudo)")
    return Judged(what, "", f"{counted:.0f} new", Met.NO if counted else Met.YES, source)


def _steps(told: Told) -> Judged:
    """An apply that stopped half-way has not cured, however calm the node is meanwhile."""
    done = sum(each.outcome is not None for each in told.records)
    now = f"{done} of {len(told.plan.automatic)}"
    note = f"it stopped: {printable(told.ended_why)}" if told.ended_why else ""
    return Judged("steps that were done", "", now, Met.NO, "the journal of this apply", note)


def _number(value: Any, shape: str) -> str:
    return "?" if value is None else shape.format(float(value))


def heading(found: Verified) -> str:
    """The verdict in a sentence."""
    missed = [each.what for each in found.judged if each.met is Met.NO]
    unknown = [each.what for each in found.judged if each.met is Met.UNKNOWN]
    if missed:
        return f"{count(len(missed), 'criterion', 'criteria')} not met: {', '.join(missed)}"
    if unknown:
        return f"nothing speaks against it, and {', '.join(unknown)} could not be read"
    return f"all {count(len(found.judged), 'criterion', 'criteria')} met"
