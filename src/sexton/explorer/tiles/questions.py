"""Slow queries about a recording: flame graphs, and what was wrong.

By the same rules as `sexton diagnose` and `sexton why`. Answers are cached as long as they are
valid. After `fork`, each query runs in its own process.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

from sexton.detect.registry import all_detectors
from sexton.explain.diagnosis import diagnose
from sexton.explorer.tiles.flames import LATE_S, Samples, Seen, Who
from sexton.explorer.tiles.follow import GrowingRecording
from sexton.explorer.tiles.processes import ForkServer, Gone, Stop, Unanswered, Usage
from sexton.explorer.tiles.time_order import Ordered
from sexton.model.diagnosis import Diagnosis, Replayed
from sexton.model.finding import Finding, Verdict
from sexton.model.lane import Marked
from sexton.model.profile import Flame, FlameDifference
from sexton.model.why import Subject, Why
from sexton.replay.query import Question, boot_of, why_in
from sexton.replay.span import around, between, everything
from sexton.replay.window import Replay, window
from sexton.store.recording import Recording

T = TypeVar("T")
Window = tuple[float, float]
#: The request; last comes the end of its span, or None for the whole recording.
Key = tuple[Any, ...]
#: How often to check that the client is still connected.
_LOOK_S = 0.1


class AnswerCache:
    """Runs one query at a time, of all caches that share `working`: each needs a whole core.

    Keeps the last `most` answers; while a recorder runs, only those about spans that ended
    `late_s` before.
    """

    def __init__(self, most: int, working: threading.Lock, late_s: float = 0.0) -> None:
        self._most, self._late_s = most, late_s
        self._working = working
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, Any] = OrderedDict()
        self._of: Recording | None = None

    def known(self, recording: Recording, key: Key) -> Any | None:
        """The cached answer, if it is still valid."""
        with self._lock:
            if self._of is not recording:
                self._forget()
                self._of = recording
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def answer(
        self, recording: Recording, key: Key, ask: Callable[[], T], stop: Stop | None = None
    ) -> T:
        """The cached or a new answer; `Unanswered` if `stop` returns true first."""
        found = self.known(recording, key)
        if found is not None:
            return cast("T", found)
        while not self._working.acquire(timeout=_LOOK_S):
            if stop is not None and stop():
                raise Unanswered("cancelled: the client has disconnected")
        try:
            found = self.known(recording, key)
            if found is None:
                found = ask()
                with self._lock:
                    self._kept[key] = found
                    while len(self._kept) > self._most:
                        self._kept.popitem(last=False)
            return cast("T", found)
        finally:
            self._working.release()

    def _forget(self) -> None:
        """Drop answers about a span that was still being recorded: there is more of it now."""
        before = self._of
        reached = before.segments[-1].end[1] if before is not None and before.segments else 0.0
        for key in list(self._kept):
            if not isinstance(key[-1], float) or key[-1] > reached - self._late_s:
                del self._kept[key]


#: Seconds on either side of a moment that are examined.
AROUND_S = 300.0


def _diagnosis(recording: Recording, start: float, end: float) -> Diagnosis:
    found = window(recording, between(recording, start, end))
    return _with_replay(recording, diagnose(found.window), found)


def _why(recording: Recording, what: str | float, span: Window | None) -> Why:
    """For a name in a span or in the last boot, or for a moment."""
    if isinstance(what, str):
        subject: str | Subject = what
        mine = everything(recording) if span is None else between(recording, *span)
    else:
        subject = Subject("moment", f"@{what:.0f}", what, 1.0)
        mine = around(recording, what, what + 1.0, AROUND_S)
    quiet = mine if isinstance(what, str) and span is not None else boot_of(recording, mine)
    why, found = why_in(recording, Question(subject, mine, quiet))
    return replace(why, diagnosis=_with_replay(recording, why.diagnosis, found))


def finding_marks(diagnosis: Diagnosis) -> list[Marked]:
    """Present findings that have a time, as marks."""
    lanes = {detector.id: detector.lane for detector in all_detectors()}
    found = [
        Marked(
            finding.start,
            finding.end if finding.end is not None and finding.end > finding.start else None,
            "finding",
            finding.summary,
            finding.severity.value,
            _entity(finding),
            lanes.get(finding.id, ""),
        )
        for finding in diagnosis.findings
        if finding.verdict is Verdict.PRESENT and finding.start is not None
    ]
    return sorted(found, key=lambda marked: marked.time)


def _entity(finding: Finding) -> str:
    for kind, names in finding.entities.items():
        if names:
            return f"core {names[0]}" if kind == "core" else names[0]
    return ""


def _with_replay(recording: Recording, diagnosis: Diagnosis, found: Replay) -> Diagnosis:
    return replace(diagnosis, replayed=Replayed(str(recording.path), found.notes))


EVERYONE = Who()
#: Cached answers; a flame graph of a large node takes some megabytes.
_STORIES, _FLAMES = 8, 4


class Questions:
    """Thread-safe. `stop` returns true when the client no longer waits."""

    def __init__(self, followed: GrowingRecording) -> None:
        self._followed = followed
        self._samples = Samples()
        working = threading.Lock()
        self._stories = AnswerCache(_STORIES, working)
        self._flames = AnswerCache(_FLAMES, working, LATE_S)
        self._processes: ForkServer | None = None

    @property
    def recording(self) -> Recording:
        """Its state at the last check."""
        return self._followed.recording

    @property
    def live(self) -> bool:
        """Was a recorder running at the last check?"""
        return self._followed.live

    def flame(self, start: float, end: float, who: Who = EVERYONE) -> Flame:
        """The stacks from `start` to before `end`; `StoreError` if none were recorded."""
        return self.seen(start, end, who).flame

    def seen(self, start: float, end: float, who: Who = EVERYONE, stop: Stop | None = None) -> Seen:
        """The same, with a note on which part of the span it shows."""
        key = ("flame", who, start, end)
        found: Seen = self._answer(self._flames, key, ((start, end), who), stop)
        return found

    def glimpse(self, start: float, end: float, who: Who = EVERYONE) -> Seen:
        """The same from fewer samples, at once; the whole if it is cached."""
        known = self._flames.known(self.recording, ("flame", who, start, end))
        if known is not None:
            return cast("Seen", known)
        return self._samples.flame(self.recording, (start, end), who, quick=True)

    def ordered(
        self, start: float, end: float, who: Who = EVERYONE, stop: Stop | None = None
    ) -> Ordered:
        """The stacks from `start` to before `end`, in the order of time."""
        key = ("ordered", who, start, end)
        found: Ordered = self._answer(self._flames, key, ((start, end), who), stop)
        return found

    def difference(
        self, span: Window, baseline: Window, who: Who = EVERYONE, stop: Stop | None = None
    ) -> FlameDifference:
        """A span against a baseline, and which changes are more than chance."""
        key = ("difference", who, *span, *baseline, max(span[1], baseline[1]))
        found: FlameDifference = self._answer(self._flames, key, (span, baseline, who), stop)
        return found

    def diagnosis(self, start: float, end: float, stop: Stop | None = None) -> Diagnosis:
        """As `sexton diagnose --from` for that span; `StoreError` if nothing was recorded."""
        key = ("diagnosis", start, end)
        found: Diagnosis = self._answer(self._stories, key, (start, end), stop)
        return found

    def why(self, what: str | float, span: Window | None = None, stop: Stop | None = None) -> Why:
        """The answer of `sexton why`, for a name (in a span or all of it) or for a moment."""
        end = span[1] if span else what + AROUND_S if isinstance(what, float) else None
        key = ("why", what, span, end)
        found: Why = self._answer(self._stories, key, (what, span), stop)
        return found

    def fork(self) -> None:
        """Run expensive queries in child processes; call before starting threads."""
        self._processes = ForkServer(self)

    def close(self) -> None:
        """Stop the child processes."""
        if self._processes is not None:
            self._processes.close()

    @property
    def problems_so_far(self) -> list[str]:
        """Problems of the recording so far; the list may grow."""
        return self.recording.problems

    def usage(self) -> Usage:
        """What the child processes have used."""
        return Usage(0.0, 0) if self._processes is None else self._processes.usage()

    def prepare(self, name: str) -> None:  # noqa: ARG002
        """Read what was recorded since the last query."""
        self._followed.refresh()
        self._samples.follow(self.recording)

    def _answer(
        self, known: AnswerCache, key: Key, arguments: tuple[Any, ...], stop: Stop | None
    ) -> Any:
        """The cached or a new answer; `key` begins with the name of the query."""
        run = partial(self._run, key[0], arguments, stop)
        return known.answer(self.recording, key, run, stop)

    def _run(self, name: str, arguments: tuple[Any, ...], stop: Stop | None) -> Any:
        processes = self._processes
        if processes is not None:
            try:
                return processes.ask(name, arguments, stop)
            except Gone:  # it was killed: answer in this process
                self._processes = None
                processes.close()
        return self.answer(name, arguments)

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        """Answer in this process."""
        queries: dict[str, Callable[..., Any]] = {
            "flame": self._samples.flame,
            "ordered": self._samples.ordered,
            "difference": self._samples.difference,
            "diagnosis": _diagnosis,
            "why": _why,
        }
        return queries[name](self.recording, *arguments)
