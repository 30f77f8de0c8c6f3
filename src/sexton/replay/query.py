"""Why something happened, from a recording: for `sexton why` and the explorer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple

from sexton.detect.rows_read import witness
from sexton.errors import CommandError
from sexton.explain.aligned import Plan
from sexton.explain.diagnosis import diagnose
from sexton.explain.event_times import loop_of, occasions
from sexton.explain.subject import Names, candidates, names_for, names_of
from sexton.explain.why import explain
from sexton.model.aligned import Aligned
from sexton.model.text import clock, day, printable, shorten
from sexton.model.why import Occasions, Subject, Why
from sexton.model.window import Window
from sexton.replay.child import Child
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


class _Comparison(NamedTuple):
    """Which moments of the span are compared with its quiet seconds."""

    span: Span
    moments: tuple[float, ...]
    plan: Plan | None
    note: str = ""

    def made(self, recording: Recording) -> Aligned:
        found = aligned_in(recording, self.span, self.moments, self.plan)
        return replace(found, notes=(self.note, *found.notes)) if self.note else found


def why_in(
    recording: Recording, question: Question, during: During | None = None, *, beside: bool = False
) -> tuple[Why, Replay]:
    """The answer, and the window it is from. `CommandError` if the name is unknown, `StoreError` if
    nothing is recorded. `beside`: use a second process, which takes a fifth less time and 200 MB
    more on a large recording."""
    during = during or (lambda _: nullcontext())
    with during("reading back"):
        found = window(recording, question.span)
        names = None if isinstance(question.what, Subject) else _names(recording, question, found)
        seen = witness(found.window)  # it keeps what several of these steps need
        foreseen = _foreseen(question, names, seen) if beside else None
    with _compare_beside(recording, foreseen) if foreseen else nullcontext() as child:
        with during("reading back"):
            why = explain(question.what, diagnose(seen), seen, names)
        comparison = _comparison(why.occasions, question.quiet)
        if comparison is None:
            return replace(why, not_aligned=f"{why.occasions.words} in what was recorded"), found
        with during("comparing every signal with quiet seconds"):
            done = child.result() if child is not None and comparison == foreseen else None
            if done is None:
                return replace(why, aligned=comparison.made(recording)), found
            aligned, problems = done
    known = recording.problems
    known += [problem for problem in problems if problem not in known]
    return replace(why, aligned=aligned), found


def _compare_beside(
    recording: Recording, comparison: _Comparison
) -> Child[tuple[Aligned, list[str]]]:
    return Child(lambda: (comparison.made(recording), recording.problems))


def _foreseen(question: Question, names: Names | None, seen: Window) -> _Comparison | None:
    """What will be compared, if the diagnosis is not needed to know: the words can mean only one
    thing, and its moments are recorded as such."""
    what = question.what
    meant = (what,) if isinstance(what, Subject) else candidates(what, names or {})
    if len(meant) != 1:
        return None
    return _comparison(occasions(meant[0], seen, ()), question.quiet)


def _comparison(found: Occasions, span: Span) -> _Comparison | None:
    """`None` if it has no moments in the span."""
    moments = tuple(moment.mono_s for moment in found.moments if span.holds(moment.mono_s))
    if not moments:
        return None
    # Of a loop faster than the readings only some ends are known, as often as it was read.
    loop = None if found.partial else loop_of(moments)
    return _Comparison(span, moments, *((None, "") if loop is None else (loop.plan, loop.note)))


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
