"""Answers about a span of a recording, by the same rules as `sexton diagnose` and `sexton why`."""

from __future__ import annotations

from dataclasses import replace

from sexton.detect.registry import detector_of
from sexton.explain.diagnosis import diagnose
from sexton.model.diagnosis import Diagnosis, Replayed
from sexton.model.finding import Finding, Verdict
from sexton.model.lane import Marked
from sexton.model.why import Subject, Why
from sexton.replay.query import Question, boot_of, why_in
from sexton.replay.span import around, between, everything
from sexton.replay.window import Replay, window
from sexton.store.recording import Recording

#: What is looked at on either side of a moment.
AROUND_S = 300.0


def diagnosis_of(recording: Recording, start: float, end: float) -> Diagnosis:
    """What was wrong between two wall times; `StoreError` where nothing was recorded."""
    found = window(recording, between(recording, start, end))
    return _told(recording, diagnose(found.window), found)


def why_of(recording: Recording, what: str, span: tuple[float, float] | None) -> Why:
    """Why did this happen, to what is named, in a span or in all of the last boot?

    `CommandError` where nothing is called so.
    """
    mine = everything(recording) if span is None else between(recording, *span)
    quiet = boot_of(recording, mine) if span is None else mine
    return _why(recording, Question(what, mine, quiet))


def why_then(recording: Recording, wall_s: float) -> Why:
    """The same of a moment."""
    subject = Subject("moment", f"@{wall_s:.0f}", wall_s, 1.0)
    mine = around(recording, wall_s, wall_s + 1.0, AROUND_S)
    return _why(recording, Question(subject, mine, boot_of(recording, mine)))


def _why(recording: Recording, question: Question) -> Why:
    why, found = why_in(recording, question)
    return replace(why, diagnosis=_told(recording, why.diagnosis, found))


def finding_marks(diagnosis: Diagnosis) -> list[Marked]:
    """Present findings that have a moment, as marks."""
    found = [
        Marked(
            each.start,
            each.end if each.end is not None and each.end > each.start else None,
            "finding",
            each.summary,
            each.severity.value,
            _entity(each),
            _lane(each.id),
        )
        for each in diagnosis.findings
        if each.verdict is Verdict.PRESENT and each.start is not None
    ]
    return sorted(found, key=lambda each: each.time)


def _lane(name: str) -> str:
    detector = detector_of(name)
    return "" if detector is None else detector.lane


def _entity(finding: Finding) -> str:
    for kind, names in finding.entities.items():
        if names:
            return f"core {names[0]}" if kind == "core" else names[0]
    return ""


def _told(recording: Recording, diagnosis: Diagnosis, found: Replay) -> Diagnosis:
    return replace(diagnosis, replayed=Replayed(str(recording.path), found.notes))
