"""Cores are slowed down because of heat.

**What is seen.** Lines of the kernel (``temperature is above threshold, cpu clock is throttled``, a
thermal zone that reached its critical temperature) and the counters of each core in
`thermal_throttle`: how often and for how long it was slowed down in this window.

**Why it hurts.** The core runs at a fraction of its speed, and a job on many nodes goes at the pace
of the slowest: one hot node holds up all others, and collective operations time out. At the
critical temperature the machine switches itself off.

**What would make it wrong.** Processors slow down for a moment at a change of load, and log it:
less than a tenth of the time is a note. Laptops and passively cooled machines do it by design.
Counters are Intel's only, and most virtual machines have neither counters nor lines, so silence
proves nothing there. A power limit is not heat and not counted.

**Check by hand.** ``dmesg -T | grep -i throttled``; ``grep .
/sys/devices/system/cpu/cpu*/thermal_throttle/*_count``; ``turbostat``; ``ipmitool sdr``.

**What to do.** Look at the node's air: fans, blocked inlets, a neighbour's exhaust, the room. If
one package of two is hot, its cooler is loose. Drain the node if others wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sexton.detect import kernel_log
from sexton.detect.faults import Fault, Judged, Report, faults, none_logged, present
from sexton.detect.findings import absent, and_more, names, unknown
from sexton.detect.kernel_log import Line
from sexton.detect.registry import Threshold, detector, look
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.hardware import CoreThrottle
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.rates import steps_of, totals_in

NAME = "thermal_throttling"
FAMILIES = ("thermal",)

HOT = Threshold("hot", 10, "% of the window", "less is brief, after a change of load")
MANY = Threshold(
    "many", 100, "events in the window", "where the kernel does not add up the time (before 5.6)"
)
RECENT = Threshold("recent", 3600, "s", "the kernel repeats the line every five minutes")
_EVENTS, _TIMES = ("core_events", "package_events"), ("core_ms", "package_ms")
_PATH = "/sys/devices/system/cpu/cpu*/thermal_throttle"
_SHOWN = 8


class _Hot(NamedTuple):
    """A core that was slowed down in the window; `share` in per cent of the `seconds` of which the
    time is known, `None` if of none."""

    core: int
    events: float
    share: float | None
    seconds: float

    @property
    def is_hot(self) -> bool:
        return self.events >= MANY.value if self.share is None else self.share >= HOT.value


def _ruled_out(window: Window) -> str:
    return "heat" if window.read(CoreThrottle) else ""


@detector(
    thresholds=(HOT, MANY, RECENT),
    title="thermal throttling",
    story="Heat slowed the cores down",
    lanes=("cores", "events"),
    about=("core",),
    answers={"core": 8, "job": 12},
    events=FAMILIES,
    ruled_out=_ruled_out,
    advice=look("turbostat --quiet --num_iterations 5", "see temperature and clock by core"),
)
def detect(window: Window) -> Finding:
    """Which cores were slowed down, and for how much of the time."""
    counted = _counted(window)
    slowed = [item for item in counted or () if item.events]
    lines = [line for line in kernel_log.lines(window, FAMILIES) if line.text("phase") != "done"]
    logged = faults(window, lines, _judged, RECENT.value)
    if any(item.is_hot for item in slowed):
        return _hot(window, [item for item in slowed if item.is_hot])
    if logged:
        return _logged(window, logged, slowed)
    if slowed:
        return _hot(window, slowed)
    if kernel_log.was_read(window):
        return none_logged(NAME, "lines about throttled cores", window)
    lacking = kernel_log.lacking(window)
    if counted is None:
        return unknown(NAME, "neither the kernel log nor the counters were read", lacking)
    cores = count(len(counted), "core")
    summary = f"0 of {cores} slowed down by heat in {duration(window.seconds)}"
    return absent(NAME, summary, lacking=lacking)


def _counted(window: Window) -> list[_Hot] | None:
    over = totals_in(window, CoreThrottle, *_EVENTS)
    if over is None:
        return None
    steps = steps_of(window.columns(CoreThrottle, _TIMES))
    times = [steps.over(name, window.start_mono, window.end_mono) for name in _TIMES]
    found = []
    for thing, mine in over.items():
        known = [amounts[thing] for amounts in times if thing in amounts]
        most = max(known, key=lambda amount: amount.rate, default=None)
        share = None if most is None else min(most.rate / 10, 100.0)
        spent = window.seconds if most is None else most.seconds
        found.append(_Hot(int(str(thing[0])), max(mine.values()), share, spent))
    return sorted(found, key=lambda item: (-(item.share or 0.0), -item.events, item.core))


def _judged(line: Line) -> Judged:
    if line.text("zone") is not None:
        return Judged(line.text("zone") or "", "critical temperature", Severity.CRITICAL)
    return Judged("", "throttled by heat", Severity.WARNING)


def _hot(window: Window, slowed: Sequence[_Hot]) -> Finding:
    worst = slowed[0]
    cores = f"core {worst.core}{and_more(slowed, 'core')}"
    often = count(worst.events, "time")
    share = f"for {worst.share:.0f} % of" if worst.share is not None else f"{often} in"
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING if worst.is_hot else Severity.INFO,
        f"heat slowed {cores} down {share} {duration(worst.seconds)}",
        entities={"core": tuple(str(item.core) for item in slowed)},
        start=window.start,
        end=window.end,
        evidence=tuple(map(_evidence, slowed[:_SHOWN])),
    )


def _evidence(item: _Hot) -> Evidence:
    known = item.share is not None
    return Evidence(
        f"core {item.core}, slowed down by heat",
        f"{item.share:.0f} %" if known else f"{item.events:,.0f}",
        f"< {HOT.value:.0f} %" if known else f"< {MANY.value:.0f}",
        f"% of {duration(item.seconds)} ({item.events:,.0f} events)"
        if known
        else "events in the window",
        _PATH,
        item.share if known else item.events,
        "the machine is built to run hot",
    )


def _logged(window: Window, logged: Sequence[Fault], slowed: Sequence[_Hot]) -> Finding:
    worst = logged[0]
    shown = [fault for fault in logged if fault.severity is worst.severity]
    cores = names(line.text("cpu") for fault in shown for line in reversed(fault.lines))
    text = f"{worst.thing} reached its critical temperature {worst.when}"
    if not worst.thing:
        text = f"heat slowed {count(len(cores), 'core')} down, last {worst.when}{worst.times}"
    report = Report(
        text,
        {"core": cores},
        "it was brief, after a change of load",
        tuple(map(_evidence, slowed[:_SHOWN])),
    )
    return present(NAME, logged, window, report)
