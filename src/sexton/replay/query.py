"""Why something happened, from a recording: for `sexton why` and the explorer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple

from sexton.errors import CommandError
from sexton.explain.diagnosis import diagnose
from sexton.explain.moments import clock, day
from sexton.explain.occasions import loop_of
from sexton.explain.subject import Names, candidates, names_for, names_of
from sexton.explain.why import explain
from sexton.model.text import printable, shorten
from sexton.model.why import Subject, Why
from sexton.replay.signals import aligned_in
from sexton.replay.span import Span
from sexton.replay.window import Replay, window
from sexton.store.recording import Recording

#: Shows progress while it runs.
During = Callable[[str], AbstractContextManager[None]]


class Question(NamedTuple):
    """The subject, the span to judge, and the span to search for quiet seconds."""

    what: str | Subject
    span: Span
    quiet: Span


def why_in(
    recording: Recording, question: Question, during: During | None = None
) -> tuple[Why, Replay]:
    """The answer, and the window it is from. `CommandError` if the name is unknown, `StoreError` if
    nothing is recorded."""
    during = during or (lambda _: nullcontext())
    with during("reading back"):
        found = window(recording, question.span)
        names = None if isinstance(question.what, Subject) else _names(recording, question, found)
        why = explain(question.what, diagnose(found.window), found.window, names)
    return _aligned(why, recording, question.quiet, during), found


def _names(recording: Recording, question: Question, found: Replay) -> Names:
    """What the question's words name in the span; if nothing, the error says where they occur."""
    said = str(question.what)
    try:
        return names_for(said, found.window)
    except CommandError:
        boots = dict.fromkeys(segment.boot_id for segment in reversed(recording.segments))
        for boot in boots:
            whole = boot_of(recording, replace(question.span, boot_id=boot))
            judged = (question.span.boot_id, question.span.start, question.span.end)
            if (whole.boot_id, whole.start, whole.end) == judged:
                continue
            if candidates(said, names_of(window(recording, whole).window)):
                text = f"{shorten(printable(said), 80)!r}"
                part = f"{_stamp(whole.start[1])}..{_stamp(whole.end[1])}"
                raise CommandError(
                    f"{text} is not in the window that was judged; it was recorded in"
                    f" --window {part}"
                ) from None
        raise


def _stamp(wall_s: float) -> str:
    return f"{day(wall_s)}T{clock(wall_s)}Z"


def boot_of(recording: Recording, span: Span) -> Span:
    """All that was recorded of the same boot: the span to search for quiet seconds."""
    mine = [segment for segment in recording.segments if segment.boot_id == span.boot_id]
    return Span(span.boot_id, mine[0].start, mine[-1].end)


def _aligned(why: Why, recording: Recording, span: Span, during: During) -> Why:
    """Add what was different in the seconds before its events, over the whole span."""
    moments = [moment.mono_s for moment in why.occasions.moments if span.holds(moment.mono_s)]
    if not moments:
        return replace(why, not_aligned=f"{why.occasions.words} in what was recorded")
    # Of a loop faster than the readings only some ends are known, at the pace of the readings.
    loop = None if why.occasions.partial else loop_of(moments)
    plan = None if loop is None else loop.plan
    with during("comparing every signal with quiet seconds"):
        aligned = aligned_in(recording, span, moments, plan)
    if loop is not None:
        aligned = replace(aligned, notes=(loop.note, *aligned.notes))
    return replace(why, aligned=aligned)
