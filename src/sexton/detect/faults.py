"""Faults that the kernel logged: lines grouped by what they are about, how grave, how long ago.

A disk, a memory module or a GPU that fails says so in lines of one kind, often hundreds. A detector
judges a line: which thing, what happened to it, how grave. Here lines become faults, and faults a
finding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from sexton.detect import kernel_log
from sexton.detect.kernel_log import Line, Reach
from sexton.detect.registry import missing
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.row import Row
from sexton.model.text import seconds as duration
from sexton.model.text import shorten
from sexton.model.window import Window

_SHOWN = 8
_WIDTH = 140
_OLDER = Missing(
    "how full the filesystems are, and errors of fabric ports",
    "sudo sexton record  # older versions did not",
)


class Judged(NamedTuple):
    """What one line says: of which thing, what in a few words, and how grave it is if recent."""

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
        """ "5 min ago" of the last line."""
        return ago(self.last)

    @property
    def times(self) -> str:
        """Fit for the end of a phrase: "" for one line, " (12 lines)"."""
        return f" ({len(self.lines):,} lines)" if len(self.lines) > 1 else ""


Judge = Callable[[Line], Judged | None]


def ago(line: Line) -> str:
    """How long before the end of the window it was said."""
    return f"{duration(line.age_s)} ago" if line.age_s is not None else "at an unknown time"


def reach_of(window: Window) -> Reach:
    """How far back the log goes; nothing is known of one that was not read."""
    return kernel_log.reach(window) or Reach(None, False, 0, "kernel log")


def faults(window: Window, lines: Sequence[Line], judge: Judge, recent_s: float) -> list[Fault]:
    """The gravest first, of equals the latest.

    A line counts fully inside the window or if it is younger than `recent_s`, at most as a warning
    if nothing dates it, and as a note if it is older.
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
    """What a finding says beside its faults; `wrong_if` is of each line."""

    summary: str
    entities: Mapping[str, tuple[str, ...]]
    wrong_if: str
    more: tuple[Evidence, ...] = ()


def present(name: str, found: Sequence[Fault], reach: Reach, report: Report) -> Finding:
    """A finding about the gravest of these faults, with the moments of all that are as grave."""
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
        evidence=(
            *(evidence(fault, reach, report.wrong_if) for fault in found[:_SHOWN]),
            *report.more,
        ),
    )


def evidence(fault: Fault, reach: Reach, wrong_if: str) -> Evidence:
    """One fault: the kernel's last line about it, and how many there are."""
    return Evidence(
        ", ".join(part for part in (fault.what, fault.thing, fault.when) if part),
        shorten(fault.last.event.message, _WIDTH),
        "never",
        "line" if len(fault.lines) == 1 else f"the last of {len(fault.lines):,} lines",
        reach.origin,
        float(len(fault.lines)),
        wrong_if,
    )


def unrecorded(window: Window, kind: type[Row]) -> Missing:
    """Why a table of filesystems or hardware was not read; recordings of older versions lack it."""
    state = window.why_missing(kind)
    return missing(state) if state.path else _OLDER


def none_logged(what: str, reach: Reach) -> Evidence:
    """That the log has no such line, and how far back that holds."""
    return Evidence(
        f"{what} in the kernel log",
        "0",
        "0",
        reach.words,
        reach.origin,
        0.0,
        reach.wrong_if or "the lines were lost",
    )


def absent(name: str, what: str, reach: Reach, more: tuple[Evidence, ...] = ()) -> Finding:
    """Nothing of the kind in the log."""
    return Finding(
        name,
        Verdict.ABSENT,
        Severity.INFO,
        f"0 {what} {reach.words}",
        evidence=(none_logged(what, reach), *more),
    )


def names(values: Sequence[str | None]) -> tuple[str, ...]:
    """Each once, in their order."""
    return tuple(dict.fromkeys(value for value in values if value))
