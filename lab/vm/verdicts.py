"""Diagnoses a collected recording and compares the result with the scene's expectation.

A check (``check_X``, `lab/X.py`) records nothing: it passed if `failed` in its ``X.json`` is empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.incident import SCENE, Expected, false_alarms, mismatches, replayed, top_cause
from lab.vm.results import CHECK, Outcome
from lab.vm.tools import log
from sexton.errors import StoreError
from sexton.explain.diagnosis import diagnose
from sexton.model.diagnosis import Exit
from sexton.model.finding import Severity, Verdict
from sexton.model.text import printable

LIVE = "live.json"


def with_verdict(outcome: Outcome) -> Outcome:
    """The outcome with Sexton's verdict, if the scene was played."""
    if outcome.scene.startswith(CHECK):
        return _checked(outcome)
    if not outcome.good or outcome.folder is None:
        return outcome
    try:
        top, wrong = _recorded(outcome.folder)
        live, wrong_live = _live(outcome.folder)
    except (OSError, ValueError, KeyError, StoreError) as error:
        words = printable(f"no verdict: {type(error).__name__}: {error}")
        return replace(outcome, wrong=(words,))
    found = replace(outcome, top=top, live=live, wrong=(*wrong, *wrong_live))
    place = f"{outcome.kernel}-{outcome.hierarchy}"
    log(f"{place}: {outcome.scene}: {top}, {'wrong' if found.wrong else 'right'}")
    return found


def _checked(outcome: Outcome) -> Outcome:
    """The verdict of a check from its JSON file, which also lists failures."""
    if outcome.folder is None or outcome.unfit:
        return outcome
    result = outcome.folder / f"{outcome.scene.removeprefix(CHECK)}.json"
    if not outcome.good and not result.is_file():
        return outcome  # no result: only its last line of output is known
    try:
        document = json.loads(result.read_text("utf-8"))
        number = len(document.get("claims") or document.get("experiments") or ())
        failed = {str(name): list(map(str, why)) for name, why in document["failed"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        words = printable(f"no verdict: {type(error).__name__}: {error}")
        return replace(outcome, wrong=(words,))
    wrong = tuple(printable(f"{name}: {why}") for name in failed for why in failed[name])
    top = f"{number - len(failed)} of {number} hold"
    place = f"{outcome.kernel}-{outcome.hierarchy}"
    log(f"{place}: {outcome.scene}: {top}")
    return replace(outcome, top=top, wrong=wrong)


def _recorded(folder: Path) -> tuple[str, list[str]]:
    expected = Expected.read(_scene(folder)["expected"])
    diagnosis = diagnose(replayed(folder).window)
    wrong = [*mismatches(diagnosis, expected)]
    for name in false_alarms(diagnosis, expected):
        if name not in expected.absent:  # already reported
            wrong.append(f"false alarm: {name}: {diagnosis.by_id[name].summary}")
    return _cause(top_cause(diagnosis), diagnosis.exit), [printable(mistake) for mistake in wrong]


def _live(folder: Path) -> tuple[str, list[str]]:
    """The live diagnosis made in the guest, if requested."""
    wanted = _scene(folder).get("live")
    if wanted is None:
        return "-", []
    document = json.loads((folder / LIVE).read_text("utf-8"))
    found = printable(_cause(_root(document), Exit(document["exit"])))
    expected = _cause(wanted["root"], Exit.HEALTHY if wanted["root"] is None else Exit.PROBLEM)
    if found == expected:
        return found, []
    return found, [f"live: {found}, expected {expected}"]


def _scene(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / SCENE).read_text("utf-8"))
    return document


def _root(document: Mapping[str, Any]) -> str | None:
    """As `lab.incident.top_cause`, from the JSON."""
    if document["exit"] != Exit.PROBLEM:
        return None
    problems: Iterator[str] = (
        finding["id"] for finding in document["findings"] if _is_problem(finding)
    )
    return str(document["chains"][0]["root"]) if document["chains"] else next(problems, None)


def _is_problem(finding: Mapping[str, Any]) -> bool:
    grave = Severity(finding["severity"]).rank >= Severity.WARNING.rank
    return grave and finding["verdict"] == Verdict.PRESENT.value


def _cause(root: str | None, status: Exit) -> str:
    if root is not None:
        return root
    return {Exit.HEALTHY: "healthy", Exit.CANNOT_TELL: "cannot tell"}.get(status, "none")
