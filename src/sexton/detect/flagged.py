"""Findings from log patterns of the node's owner: one for each pattern that a line matched.

They are no detectors: what a line means and how bad it is stands in its pattern's file
(`sexton.sources.kmsg.own`) and comes with each line, so a recording needs no such file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sexton.detect.kernel_log import DAY_S, Line, lines
from sexton.detect.registry import settings_in_force
from sexton.detect.witness import Witness
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.event import FLAGGED, KernelLog
from sexton.model.text import count, shorten
from sexton.model.text import seconds as duration

#: A named group of this name is an entity of that kind.
_KINDS = {"core": "core", "cpu": "core", "nic": "nic", "unit": "unit", "cgroup": "cgroup"}
_SHOWN = 120
_MOST_ENTITIES = 8


def finding_id(pattern: str) -> str:
    """The finding of a pattern.

    >>> finding_id("bmc-silent")
    'pattern_bmc_silent'
    """
    return "pattern_" + pattern.replace("-", "_")


def flagged(window: Witness) -> Iterator[Finding]:
    """A finding per pattern; lines older than a day, and those without a time, are only noted."""
    with window.noting() as noted:
        by_pattern: dict[str, list[Line]] = {}
        for line in lines(window, (FLAGGED,)):
            by_pattern.setdefault(line.event.pattern, []).append(line)
        logs = window.latest(KernelLog)
    origin = logs[0].origin if logs else "kernel log"
    for pattern, found in sorted(by_pattern.items()):
        finding = replace(_finding(pattern, found, origin), rows=window.rows(noted))
        yield replace(finding, silenced=settings_in_force().silenced(finding))


def _finding(pattern: str, found: list[Line], origin: str) -> Finding:
    last = found[-1]
    recent = [line for line in found if line.age_s is not None and line.age_s <= DAY_S]
    ago = "at an unknown time" if last.age_s is None else f"{duration(last.age_s)} ago"
    times = [line.wall_s for line in found if line.wall_s is not None]
    message = shorten(last.event.message, _SHOWN)
    entities: dict[str, tuple[str, ...]] = {}
    for name, kind in _KINDS.items():
        names = dict.fromkeys(text for line in found if (text := line.text(name)) is not None)
        if names:
            entities[kind] = (*entities.get(kind, ()), *list(names)[:_MOST_ENTITIES])
    return Finding(
        finding_id(pattern),
        Verdict.PRESENT,
        _severity(last) if recent else Severity.INFO,
        f"{last.text('meaning') or pattern}: {count(len(found), 'log line')}, the last {ago}",
        entities,
        min(times, default=None),
        max(times, default=None),
        (
            Evidence(
                f"lines of pattern {pattern}",
                f"{len(found):,}",
                "0",
                "lines",
                origin,
                float(len(found)),
                wrong_if="the pattern matches lines that mean something else",
            ),
            Evidence("the last of them", message, "", "", origin),
        ),
    )


def _severity(line: Line) -> Severity:
    """As its file says; a recording may have been written by anything."""
    known = {severity.value: severity for severity in Severity}
    return known.get(line.text("severity") or "", Severity.INFO)
