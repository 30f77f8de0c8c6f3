"""Findings from log patterns that the node's owner configured: one per pattern that matched.

They are not detectors: the pattern's file (`sexton.sources.kmsg.own`) says what a line means and
how grave it is. Both are stored with each line, so a recording needs no such file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sexton.detect.kernel_log import DAY_S, NO_REACH, Line, lines, reach
from sexton.detect.registry import settings_in_force
from sexton.detect.rows_read import Witness
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.event import FLAGGED, KernelEvent, ServiceEvent
from sexton.model.text import count, shorten

#: Named groups of a pattern that are entities, with their kind.
_KINDS = {"core": "core", "cpu": "core", "nic": "nic", "unit": "unit", "cgroup": "cgroup"}
#: What the id of such a finding begins with.
PREFIX = "pattern_"
_SHOWN = 120
_MOST_ENTITIES = 8


def finding_id(pattern: str) -> str:
    """The id of a pattern's finding.

    >>> finding_id("bmc-silent")
    'pattern_bmc_silent'
    """
    return PREFIX + pattern.replace("-", "_")


def flagged(window: Witness) -> Iterator[Finding]:
    """A finding per pattern; *info* if all its lines are undated or older than a day."""
    with window.noting() as noted:
        by_pattern: dict[str, list[Line]] = {}
        for line in lines(window, (FLAGGED,)):
            by_pattern.setdefault(line.event.pattern, []).append(line)
        log = reach(window) if by_pattern else None
    origin = (log or NO_REACH).origin
    for pattern, found in sorted(by_pattern.items()):
        finding = replace(_finding(pattern, found, origin), rows=window.rows(noted))
        yield replace(finding, silenced=settings_in_force().silenced(finding))


def _finding(pattern: str, found: list[Line], origin: str) -> Finding:
    last = found[-1]
    recent = [line for line in found if line.age_s is not None and line.age_s <= DAY_S]
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
        (owners_severity(last.event) if recent else None) or Severity.INFO,
        f"{last.text('meaning') or pattern}: {count(len(found), 'log line')}, the last {last.ago}",
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


def owners_severity(event: KernelEvent | ServiceEvent) -> Severity | None:
    """As its pattern's file says; `None` if the line has no valid one."""
    return next((grade for grade in Severity if grade == event.fields.get("severity")), None)
