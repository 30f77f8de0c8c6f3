"""How a detector declares itself, and how they are all found and run.

A detector is one module in `sexton.detect.detectors`. Its file's stem is its id, its docstring
its page, and one function looks at a window::

    LIMIT = Threshold("system time", 90, "% of a core", "why ninety")

    @detector(needs=(CoreTimes,), thresholds=(LIMIT,))
    def detect(window: Window) -> Finding: ...

If a row type in `needs` was never read, the engine answers *unknown* by itself, with the reason
and the remedy of the source that would have given it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import sexton.detect.detectors
from sexton.detect.threshold import Threshold
from sexton.detect.witness import witness
from sexton.model.finding import Finding, Missing, Severity, Verdict
from sexton.model.row import Row
from sexton.model.window import SourceState, Window

Detect = Callable[[Window], Finding]
_PACKAGE = "sexton.detect.detectors."


class Detector(NamedTuple):
    """What the registry knows of a detector."""

    id: str
    doc: str
    needs: tuple[type[Row], ...]
    thresholds: tuple[Threshold, ...]
    detect: Detect

    @property
    def title(self) -> str:
        """The first line of its page."""
        return (self.doc.strip() or self.id).splitlines()[0]  # python -OO has no docstrings

    def run(self, window: Window) -> Finding:
        """Its finding with the rows it read, or *unknown* where the window lacks what it needs."""
        lacking = [kind for kind in self.needs if not window.read(kind)]
        if not lacking:
            seen = witness(window)
            with seen.noting() as noted:
                finding = self.detect(seen)
            return replace(finding, rows=seen.rows(noted))
        states = list(dict.fromkeys(window.why_missing(kind) for kind in lacking))
        return unknown(self.id, reason(states[0]), tuple(missing(state) for state in states))


_found: dict[str, Detector] = {}


def detector(
    *, needs: tuple[type[Row], ...] = (), thresholds: tuple[Threshold, ...] = ()
) -> Callable[[Detect], Detect]:
    """Register the decorated function under its module's stem."""

    def register(function: Detect) -> Detect:
        name = function.__module__.removeprefix(_PACKAGE)
        doc = sys.modules[function.__module__].__doc__ or ""
        _found[name] = Detector(name, doc, needs, thresholds, function)
        return function

    return register


@cache
def all_detectors() -> tuple[Detector, ...]:
    """Every detector there is, by walking the folder; sorted by id."""
    for module in pkgutil.iter_modules(sexton.detect.detectors.__path__, _PACKAGE):
        importlib.import_module(module.name)
    return tuple(_found[name] for name in sorted(_found))


def run_all(window: Window) -> tuple[Finding, ...]:
    """Every detector's finding: problems first, the gravest of them at the top."""
    order = [Verdict.PRESENT, Verdict.UNKNOWN, Verdict.ABSENT, Verdict.NOT_APPLICABLE]
    seen = witness(window)
    findings = [each.run(seen) for each in all_detectors()]
    return tuple(
        sorted(findings, key=lambda each: (order.index(each.verdict), -each.severity.rank, each.id))
    )


def unknown(name: str, summary: str, lacking: tuple[Missing, ...]) -> Finding:
    """*Could not tell*, with what is missing and how to grant it."""
    return Finding(name, Verdict.UNKNOWN, Severity.INFO, summary, missing=lacking)


def not_applicable(name: str, summary: str) -> Finding:
    """There is nothing here that the symptom could happen to."""
    return Finding(name, Verdict.NOT_APPLICABLE, Severity.INFO, summary)


def reason(state: SourceState) -> str:
    """Why a source gave nothing, in words."""
    words = {
        "absent": "not there",
        "denied": "not allowed",
        "malformed": "not understood",
        "timeout": "did not answer",
        "skipped": "not read, it would have cost too much",
        "failed": "failed in Sexton itself",
    }.get(state.state, state.state)
    path = state.path or state.id or "not recorded"
    if state.state == "absent" and state.detail:
        return f"{path}: {state.detail}"  # says more than "not there", and what is true
    detail = f" ({state.detail})" if state.detail else ""
    return f"{path}: {words}{detail}"


#: For sources that know of nothing better: an unknown without a remedy helps nobody.
_REMEDIES = {
    "absent": "sudo sexton diagnose  # on the node itself, with its /proc and /sys in sight",
    "denied": "sudo sexton diagnose",
    "malformed": "sexton sources  # names it; if it should be understood, please report it",
    "failed": "sexton sources  # names it; a bug of its own, please report it",
    "timeout": "sexton sources  # asks again; a file that blocks is worth a look of its own",
}


def missing(state: SourceState) -> Missing:
    """A source's state as something a finding lacks."""
    return Missing(reason(state), state.grant or _REMEDIES.get(state.state, ""))
