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

import numpy as np

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

HOT = Threshold("hot", 10, "% of the known time", "less is brief, after a change of load")
MANY = Threshold(
    "many", 100, "events in the window", "where their time is unknown: in gaps, and before 5.6"
)
RECENT = Threshold("recent", 3600, "s", "the kernel repeats the line every five minutes")
_EVENTS, _TIMES = ("core_events", "package_events"), ("core_ms", "package_ms")
_PATH = "/sys/devices/system/cpu/cpu*/thermal_throttle"
_SHOWN = 8


class _Hot(NamedTuple):
    """A core that was slowed down: `events` in so many seconds, `share` in per cent of them.

    These are the seconds of which the time is known. If it was not slowed down in any of them,
    the `share` is `None` and the events are those of the whole window.
    """

    core: int
    events: int
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
    slowed = [item for item in counted or () if item.events or item.share]
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
    steps = steps_of(window.columns(CoreThrottle, (*_EVENTS, *_TIMES)))
    kinds = []
    for pair in zip(_EVENTS, _TIMES, strict=True):
        events, times = (steps.moved[name] for name in pair)
        events[np.isnan(times)] = np.nan  # of the same seconds as the share
        kinds.append([steps.over(name, window.start_mono, window.end_mono) for name in pair])
    found = []
    for thing, mine in over.items():
        known = [
            (long[thing], int(often[thing].amount) if thing in often else 0)
            for often, long in kinds
            if thing in long
        ]
        most, number = max(known, key=lambda kind: (kind[0].rate, kind[1]), default=(None, 0))
        core = int(str(thing[0]))
        if most is not None and (most.amount or number):
            found.append(_Hot(core, number, min(most.rate / 10, 100.0), most.seconds))
        else:
            found.append(_Hot(core, int(max(mine.values())), None, window.seconds))
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
        f"{item.share:.0f} %" if known else f"{item.events:,}",
        f"< {HOT.value:.0f} %" if known else f"< {MANY.value:.0f}",
        f"% of {duration(item.seconds)} ({item.events:,} events)"
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
