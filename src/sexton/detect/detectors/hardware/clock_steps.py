"""The wall clock was set, or cannot be trusted.

**What is seen.** The wall clock against the monotonic clock at every reading of the window: a step
of half a second and more; and the kernel's line that a clock source is unstable.

**Why it hurts.** Leases, tokens and certificates are judged by the wall clock: a step forward makes
them expire at once, a step back makes log lines and checkpoints of two hours look like one. Nodes
whose clocks differ do not agree on which event came first. A time-stamp counter that was found
unstable is replaced by a slow clock source, which makes every read of the time slower.

**What would make it wrong.** The first step after boot is normal (an NTP daemon that finds the
clock wrong sets it once): it is a note in the first ten minutes. A suspended or migrated machine
steps forward by the time it slept. The kernel's watchdog also blames a good counter if a core was
held or a virtual machine was paused during the check. Steps before the window are not seen.

**Check by hand.** ``chronyc tracking``, ``timedatectl``, ``journalctl -u chrony -u
systemd-timesyncd``; ``cat /sys/devices/system/clocksource/clocksource0/current_clocksource``.

**What to do.** Find out who set it: NTP (wrong servers, two daemons at once), an administrator, or
the hypervisor after a pause. Let a daemon slew instead of step (``makestep 1 3`` in chrony). An
unstable counter: look for held cores at that time first (`soft_lockups`, `cpu_steal`).
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.detect import kernel_log
from sexton.detect.faults import Fault, Judged, Report, faults, present
from sexton.detect.findings import absent, and_more, too_few_readings
from sexton.detect.kernel_log import DAY_S, Line
from sexton.detect.registry import Threshold, detector, look
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.clocks import Clocks, ClockStep, clock_steps

NAME = "clock_steps"
FAMILIES = ("clock",)

STEP = Threshold("step", 0.5, "s", "beyond what a daemon slews between two readings")
LARGE = Threshold("large", 60, "s", "tokens, leases and certificates are judged by minutes")
BOOTED = Threshold("after boot", 600, "s", "NTP daemons set the clock once when they start")
RECENT = Threshold("recent", DAY_S, "s", "the slow clock source stays until the next boot")
_SHOWN = 8
_SOURCE = "clock_gettime(2)"


@detector(
    thresholds=(STEP, LARGE, BOOTED, RECENT),
    title="clock steps",
    story="The clock was set",
    lanes=("events",),
    answers={"job": 11},
    events=FAMILIES,
    advice=look("chronyc tracking; timedatectl", "see what sets the clock, and how far off it is"),
)
def detect(window: Window) -> Finding:
    """How far the wall clock moved, and when."""
    clocks = clock_steps(window, STEP.value)
    logged = faults(window, kernel_log.lines(window, FAMILIES), _judged, RECENT.value)
    if clocks.steps:
        return _stepped(clocks.steps)
    if logged:
        return _unstable(window, logged)
    if clocks.readings < 4:
        what = "four readings of both clocks"
        return too_few_readings(NAME, "too few readings to see a step", what)
    return _steady(window, clocks)


def _judged(line: Line) -> Judged:
    return Judged(line.text("clock") or "", "unstable clock source", Severity.WARNING)


def _stepped(steps: Sequence[ClockStep]) -> Finding:
    late = [step for step in steps if step.mono >= BOOTED.value]
    worst = max(late or steps, key=lambda step: abs(step.seconds))
    severity = Severity.INFO
    if late:
        large = abs(worst.seconds) >= LARGE.value
        severity = Severity.CRITICAL if large else Severity.WARNING
    way = "forward" if worst.seconds > 0 else "back"
    return Finding(
        NAME,
        Verdict.PRESENT,
        severity,
        f"the wall clock was set {way} by {duration(abs(worst.seconds))}{and_more(steps, 'step')}",
        start=min(step.wall for step in late or steps),
        end=max(step.wall for step in late or steps),
        evidence=tuple(_evidence(step) for step in steps[:_SHOWN]),
    )


def _evidence(step: ClockStep) -> Evidence:
    return Evidence(
        "step of the wall clock",
        f"{step.seconds:+.1f} s",
        f"< {STEP.value} s",
        f"s, {duration(step.mono)} after boot",
        _SOURCE,
        step.seconds,
        "the machine was suspended or paused",
    )


def _unstable(window: Window, logged: Sequence[Fault]) -> Finding:
    worst = logged[0]
    report = Report(
        f"{f'clock source {worst.thing}' if worst.thing else 'a clock source'} was found unstable"
        f" {worst.when}",
        {},
        "a core was held or the machine paused while the kernel compared clocks",
    )
    return present(NAME, logged, window, report)


def _steady(window: Window, clocks: Clocks) -> Finding:
    none = Evidence(
        "steps of the wall clock",
        "0",
        "0",
        f"in {count(clocks.readings, 'reading')}",
        _SOURCE,
        0.0,
        "it was set before the window",
    )
    summary = f"the wall clock did not step in {duration(window.seconds)}"
    return absent(NAME, summary, [none], kernel_log.lacking(window))
