"""Faults that the kernel logged: lines grouped by what they are about, how grave, how long ago.

A failing disk, memory module or GPU logs many lines of one kind, often hundreds. A detector judges
each line: which thing, what happened to it, how grave. This module groups judged lines into faults
and makes a finding of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sexton.detect.findings import absent, missing
from sexton.detect.kernel_log import NO_REACH, Line, reach
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.row import Row
from sexton.model.text import shorten
from sexton.model.window import Window

_SHOWN = 8
_WIDTH = 140
_OLDER = Missing(
    "filesystem usage and fabric port errors",
    "sudo sexton record  # not recorded by older versions",
)


class Judged(NamedTuple):
    """One line: the thing it is about, what happened to it, and how grave that is if recent."""

    thing: str
    what: str
    severity: Severity


class Fault(NamedTuple):
    """Lines of one kind about one thing, the oldest first."""

    thing: str
    what: str
    severity: Severity
    lines: list[Line]

    @property
    def last(self) -> Line:
        return self.lines[-1]

    @property
    def when(self) -> str:
        """How long ago the last line was logged: "5 min ago"."""
        return self.last.ago

    @property
    def times(self) -> str:
        """For the end of a phrase: " (12 lines)"; "" for one line."""
        return f" ({len(self.lines):,} lines)" if len(self.lines) > 1 else ""


Judge = Callable[[Line], Judged | None]


def faults(window: Window, lines: Sequence[Line], judge: Judge, recent_s: float) -> list[Fault]:
    """Faults in these lines, the gravest first, of equals the latest.

    A line counts fully inside the window or if it is younger than `recent_s`, at most as a warning
    if it has no date, and as a note if it is older.
    """
    by_kind: dict[tuple[str, str], list[Line]] = {}
    worst: dict[tuple[str, str], Severity] = {}
    for line in lines:
        judged = judge(line)
        if judged is None:
            continue
        kind = judged.thing, judged.what
        by_kind.setdefault(kind, []).append(line)
        mine = _aged(window, line, judged.severity, recent_s)
        worst[kind] = max(worst.get(kind, mine), mine, key=lambda severity: severity.rank)
    found = [Fault(*kind, worst[kind], mine) for kind, mine in by_kind.items()]
    return sorted(found, key=lambda fault: (-fault.severity.rank, fault.last.age_s or 0.0))


def _aged(window: Window, line: Line, severity: Severity, recent_s: float) -> Severity:
    if line.age_s is None or line.wall_s is None:
        return min(severity, Severity.WARNING, key=lambda one: one.rank)
    if line.age_s <= recent_s or window.start <= line.wall_s <= window.end:
        return severity
    return Severity.INFO


class Report(NamedTuple):
    """What a finding has besides its faults; `wrong_if` is for the evidence of each fault."""

    summary: str
    entities: Mapping[str, tuple[str, ...]]
    wrong_if: str
    more: tuple[Evidence, ...] = ()


def present(name: str, found: Sequence[Fault], window: Window, report: Report) -> Finding:
    """A finding about the gravest of these faults, with the times of all that are as grave."""
    shown = [fault for fault in found if fault.severity is found[0].severity]
    dated = [line.wall_s for fault in shown for line in fault.lines if line.wall_s is not None]
    return Finding(
        name,
        Verdict.PRESENT,
        found[0].severity,
        report.summary,
        entities=report.entities,
        start=min(dated, default=None),
        end=max(dated, default=None),
        evidence=(*fault_evidence(found[:_SHOWN], window, report.wrong_if), *report.more),
    )


def fault_evidence(found: Sequence[Fault], window: Window, wrong_if: str) -> list[Evidence]:
    """For each fault the kernel's last line about it, and how many there are."""
    origin = (reach(window) or NO_REACH).origin
    return [_evidence(fault, origin, wrong_if) for fault in found]


_ONE, _LAST_OF = "line", "the last of "


def lines_logged(evidence: Evidence) -> str:
    """How many log lines the evidence of a fault stands for: "12 lines"; "" of anything else."""
    if evidence.unit == _ONE:
        return f"1 {_ONE}"
    return evidence.unit.removeprefix(_LAST_OF) if evidence.unit.startswith(_LAST_OF) else ""


def _evidence(fault: Fault, origin: str, wrong_if: str) -> Evidence:
    return Evidence(
        ", ".join(part for part in (fault.what, fault.thing, fault.when) if part),
        shorten(fault.last.event.message, _WIDTH),
        "never",
        _ONE if len(fault.lines) == 1 else f"{_LAST_OF}{len(fault.lines):,} lines",
        origin,
        float(len(fault.lines)),
        wrong_if,
    )


def unrecorded(window: Window, kind: type[Row]) -> Missing:
    """Why a table of filesystems or hardware was not read; recordings of older versions lack it."""
    state = window.why_missing(kind)
    return missing(state) if state.path else _OLDER


def none_logged(name: str, what: str, window: Window, more: tuple[Evidence, ...] = ()) -> Finding:
    """The log has no such line: absent, as far back as the log goes."""
    log = reach(window) or NO_REACH
    line = log.no_lines(f"{what} in the kernel log", number=0.0)
    return absent(name, f"0 {what} {log.words}", (line, *more))
