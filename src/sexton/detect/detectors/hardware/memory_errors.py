"""Memory of this node fails: errors that were corrected too often, or not at all.

**What is seen.** Lines of the kernel about memory that failed (`EDAC`: corrected CE, uncorrected
UE, with the module's label; ``Memory failure:`` with the process that was killed for it), machine
checks and the firmware's own reports (``[Hardware Error]``: those whose section is memory, a
processor or unknown), and the counters of the memory controllers in `/sys/devices/system/edac`,
since boot and in this window.

**Why it hurts.** An error that could not be corrected kills the process whose page it was in, with
SIGBUS, or the whole machine. Corrected ones cost nothing each; thousands of them slow the node down
(each is an interrupt to the firmware) and announce those that will not be correctable.

**What would make it wrong.** Single corrected errors are normal: cosmic rays. A machine check may
be about a cache or a link instead of memory: decode the bank. A report of the firmware about PCIe
or CXL is not counted here; one about memory and PCIe counts with the severity of the worse. Virtual
machines see only what their hypervisor passes on, usually nothing, so silence proves little there.
A firmware that handles errors itself (firmware first) hides corrected ones. Tests (`hwpoison`,
`einj`) look real.

**Check by hand.** ``dmesg -T | grep -E 'EDAC|Hardware Error|Memory failure'``; ``grep .
/sys/devices/system/edac/mc/mc*/dimm*/dimm_[cu]e_count``; ``ras-mc-ctl --summary``; ``ipmitool sel
list``.

**What to do.** Drain the node after an uncorrected error and have the named module replaced; a
cloud instance is stopped and started, which moves it to another host. After many corrected ones,
plan the replacement. A page that failed is taken out of use by the kernel, until the next boot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from sexton.detect import kernel_log
from sexton.detect.faults import Fault, Judged, Report, faults, none_logged, present
from sexton.detect.findings import absent, and_more, names, unknown
from sexton.detect.kernel_log import DAY_S, Line
from sexton.detect.registry import ANY_INTERVAL, Averages, Threshold, detector, look
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.hardware import MemoryModule
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.rates import totals_in

NAME = "memory_errors"
FAMILIES = ("memory_error", "hardware_error")

RECENT = Threshold("recent", DAY_S, "s", "what failed today may fail again before it is replaced")
MANY = Threshold(
    "many",
    100,
    "corrected errors of one module in a day",
    "a few are cosmic rays; vendors replace a module from some tens to hundreds a day on",
)
_EDAC = "/sys/devices/system/edac/mc"
_SHOWN = 8
_UNCORRECTED_BIT = 61
_CORRECTED, _KILLED = "corrected errors", "process killed for a memory error"
#: Sections of the firmware's reports that are about a link to a device, not about memory.
_LINKS = frozenset({"PCIe error", "CXL Protocol Error"})


class _Counted(NamedTuple):
    """A module's counters: since boot, and in this window (`None` is unknown)."""

    row: MemoryModule
    corrected: float | None
    uncorrected: float | None

    @property
    def name(self) -> str:
        return self.row.label or f"controller {self.row.controller}"

    @property
    def severity(self) -> Severity | None:
        if self.uncorrected:
            return Severity.CRITICAL
        if self.row.uncorrected or (self.corrected or 0.0) >= MANY.value:
            return Severity.WARNING
        return None


def _ruled_out(window: Window) -> str:
    return "memory errors" if window.read(MemoryModule) else ""


@detector(
    thresholds=(RECENT, MANY),
    title="memory errors",
    story="Memory failed",
    lanes=("events",),
    about=("dimm", "core", "task"),
    answers={"job": 6},
    events=FAMILIES,
    ruled_out=_ruled_out,
    advice=look(
        f"grep . {_EDAC}/mc*/dimm*/dimm_label {_EDAC}/mc*/dimm*/dimm_[cu]e_count",
        "see which module it is, and whether its count grows",
    ),
    averages=Averages((MemoryModule,), ANY_INTERVAL, "errors"),
)
def detect(window: Window) -> Finding:
    """Which module fails, whether errors were corrected, and what was killed for them."""
    lines = _of_memory(kernel_log.lines(window, FAMILIES))
    logged = faults(window, lines, partial(_judged, _corrected(lines)), RECENT.value)
    counted = _counted(window)
    bad = [item for item in counted if item.severity is not None]
    bad.sort(key=lambda item: (-_rank(item), item.name))
    if bad and not (logged and logged[0].severity.rank >= _rank(bad[0])):
        return _by_counters(window, bad)
    if logged:
        return _logged(window, logged, counted)
    evidence = tuple(map(_evidence, counted[:_SHOWN]))
    if kernel_log.was_read(window):
        return none_logged(NAME, "memory errors or machine checks", window, evidence)
    lacking = kernel_log.lacking(window)
    if not counted:
        what = "the kernel log was not read, and there are no error counters"
        return unknown(NAME, what, lacking)
    summary = f"0 uncorrected errors of {count(len(counted), 'memory module')} since boot"
    return absent(NAME, summary, evidence, lacking)


def _rank(item: _Counted) -> int:
    return item.severity.rank if item.severity is not None else -1


def _of_memory(lines: Sequence[Line]) -> list[Line]:
    """Lines about memory and processors. A firmware line gets the section lines that follow it, by
    its record number, which is unique until the next boot."""
    sections: dict[int, list[str]] = {}
    last: dict[int | None, int] = {}
    for at, line in enumerate(lines):
        if line.text("kind") == "firmware":
            last[line.number("record")] = at
        elif line.text("kind") == "section" and line.number("record") in last:
            mine = sections.setdefault(last[line.number("record")], [])
            mine.append(line.text("section") or "")
    found = []
    for at, line in enumerate(lines):
        about = [section for section in sections.get(at, ()) if section not in _LINKS]
        if line.text("kind") == "section" or (at in sections and not about):
            continue
        if about:
            best = "memory error" if "memory error" in about else about[0]
            fields = {**line.event.fields, "section": best}
            line = line._replace(event=replace(line.event, fields=fields))
        found.append(line)
    return found


def _corrected(lines: Sequence[Line]) -> dict[str, int]:
    """Corrected errors of the last day by module."""
    found: dict[str, int] = {}
    for line in lines:
        if line.text("kind") == "CE" and (line.age_s or 0.0) <= RECENT.value:
            dimm = line.text("dimm") or "?"
            found[dimm] = found.get(dimm, 0) + max(line.number("count") or 0, 1)
    return found


def _judged(corrected: dict[str, int], line: Line) -> Judged:
    kind, thing = line.text("kind"), line.text("dimm") or ""
    if kind == "CE":
        many = corrected.get(thing or "?", 0) >= MANY.value
        return Judged(thing, _CORRECTED, Severity.WARNING if many else Severity.INFO)
    if line.text("comm") is not None:
        return Judged(_task(line), _KILLED, Severity.CRITICAL)
    if line.text("page") is not None:
        lost = line.text("action") in ("Ignored", "Failed")
        severity = Severity.CRITICAL if lost else Severity.WARNING
        return Judged(f"page 0x{line.text('page')}", "memory page failed", severity)
    if kind == "machine check":
        thing = f"CPU {line.text('cpu')}, bank {line.text('bank')}"
        worse = int(line.text("mce") or "0", 16) >> _UNCORRECTED_BIT & 1
        if worse or line.text("exception"):
            return Judged(thing, "uncorrected machine check", Severity.CRITICAL)
        return Judged(thing, "corrected machine check", Severity.INFO)
    if kind == "firmware":
        grave = {"fatal": Severity.CRITICAL, "recoverable": Severity.WARNING}
        level = line.text("level") or ""
        section = line.text("section") or "hardware error"
        what = f"{section} reported by the firmware ({level})"
        return Judged("", what, grave.get(level, Severity.INFO))
    return Judged(thing, "uncorrected error", Severity.CRITICAL)


def _task(line: Line) -> str:
    return f"{line.text('comm')}[{line.text('pid')}]"


def _counted(window: Window) -> list[_Counted]:
    over = totals_in(window, MemoryModule, "corrected", "uncorrected") or {}
    found = []
    for row in window.latest(MemoryModule) or ():
        mine = over.get((row.controller, row.label), {})
        found.append(_Counted(row, mine.get("corrected"), mine.get("uncorrected")))
    return sorted(found, key=lambda item: (-item.row.uncorrected, -item.row.corrected, item.name))


def _logged(window: Window, logged: Sequence[Fault], counted: Sequence[_Counted]) -> Finding:
    worst = logged[0]
    shown = [fault for fault in logged if fault.severity is worst.severity]
    lines = [line for fault in shown for line in reversed(fault.lines)]
    where = f" of {worst.thing}" if worst.thing else ""
    number = _corrected(worst.lines).get(worst.thing) if worst.what == _CORRECTED else None
    what = count(number, "corrected error") if number else worst.what
    text = f"{what}{where}, last {worst.when}{worst.times}"
    if worst.what == _KILLED:
        text = f"{worst.thing} was killed because its memory failed, {worst.when}"
    others = f"; also {count(len(shown) - 1, 'other fault')}" if len(shown) > 1 else ""
    report = Report(
        text + others,
        {
            "dimm": names(line.text("dimm") for line in lines),
            "core": names(line.text("cpu") for line in lines),
            "task": names(_task(line) for line in lines if line.text("comm") is not None),
        },
        "it was injected by a test, or is about a cache or a link",
        tuple(map(_evidence, counted[:_SHOWN])),
    )
    return present(NAME, logged, window, report)


def _by_counters(window: Window, bad: Sequence[_Counted]) -> Finding:
    worst = bad[0]
    span = f"in {duration(window.seconds)}"
    if worst.uncorrected:
        text = f"{worst.uncorrected:,.0f} uncorrected errors of {worst.name} {span}"
    elif worst.row.uncorrected:
        text = f"{worst.row.uncorrected:,} uncorrected errors of {worst.name} since boot"
    else:
        text = f"{worst.corrected:,.0f} corrected errors of {worst.name} {span}"
    recent = any(item.uncorrected or item.corrected for item in bad)
    return Finding(
        NAME,
        Verdict.PRESENT,
        worst.severity or Severity.INFO,
        text + and_more(bad, "module"),
        entities={"dimm": names(item.name for item in bad)},
        start=window.start if recent else None,
        end=window.end if recent else None,
        evidence=tuple(map(_evidence, bad[:_SHOWN])),
        missing=kernel_log.lacking(window),
    )


def _evidence(item: _Counted) -> Evidence:
    row = item.row
    recent = f", {item.corrected:,.0f} in this window" if item.corrected is not None else ""
    return Evidence(
        f"errors of {item.name}",
        f"{row.uncorrected:,} uncorrected, {row.corrected:,} corrected{recent}",
        f"0, < {MANY.value:.0f} a day",
        "errors since boot",
        _EDAC,
        float(row.uncorrected or row.corrected),
        "the firmware handles errors itself and hides them",
    )
