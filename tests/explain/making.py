"""Findings and windows made by hand, for links that join them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.trace import StackCount
from sexton.model.window import Batch, Window

EMPTY = Window({})


def finding(
    name: str,
    span: tuple[float, float] | None = (100.0, 105.0),
    evidence: Sequence[Evidence] = (),
    severity: Severity = Severity.CRITICAL,
    **entities: tuple[str, ...],
) -> Finding:
    start, end = span or (None, None)
    return Finding(
        name,
        Verdict.PRESENT,
        severity,
        name.replace("_", " "),
        entities=entities,
        start=start,
        end=end,
        evidence=tuple(evidence),
    )


def evidence(what: str, number: float | None = None, value: str = "", source: str = "") -> Evidence:
    return Evidence(what, value or f"{number}", "", "", source, number)


def by_kind(system: float) -> Evidence:
    """Evidence by which `saturated_core` distinguishes system time from softirq."""
    return evidence("core 5 by kind", system, source="/proc/stat")


def stacks(*caught: tuple[tuple[str, ...], int], core: int = 5, at: int = 102) -> Window:
    """So many samples of each stack, on one core, in one second; walls are monotonic here."""
    return window({at: [StackCount(at, core, 7, 7, "job", frames, n) for frames, n in caught]})


def window(readings: dict[float, Sequence[Row]]) -> Window:
    """Rows by the second they were read in, on both clocks the same."""
    batches: dict[type[Row], list[Batch[Any]]] = {}
    for at, rows in readings.items():
        kinds: dict[type[Row], list[Row]] = {}
        for row in rows:
            kinds.setdefault(type(row), []).append(row)
        for kind, some in kinds.items():
            batches.setdefault(kind, []).append(Batch(float(at), float(at), tuple(some)))
    return Window(batches)
