"""What the exporter asks about a recording: other processes answer.

`sexton.explorer.tiles.processes` starts them: a server that keeps the recording open and reads what
is new in a few tables, and a worker for each verdict. Judging five minutes takes a moment of a core
and tens of megabytes; the process that answers scrapes must not pay for that, nor hang with a disk,
nor end with a reader that crashes.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any, NamedTuple

# Used by what reads; imported here, not in each process that is forked (60 ms of CPU).
import numpy.ma  # noqa: F401
import pyarrow.compute  # noqa: F401

from sexton.detect.registry import all_detectors
from sexton.errors import NotRead, StoreError
from sexton.explain.diagnosis import diagnose
from sexton.explain.registry import all_rules
from sexton.explorer.tiles.follow import GrowingRecording
from sexton.export.current import KEPT, SPAN_S, current
from sexton.export.judged import judged
from sexton.export.pace import FRESH_S, JUDGED_S
from sexton.export.recorder import add_status, cannot_write, read_status
from sexton.export.samples import Counts, Samples
from sexton.model.diagnosis import Diagnosis
from sexton.model.row import table
from sexton.model.window import Window
from sexton.replay.span import Span
from sexton.replay.tail import Tail
from sexton.replay.window import window
from sexton.store.journal import READING
from sexton.store.layout import is_locked
from sexton.store.recording import Recording, Segment


class Answer(NamedTuple):
    """Samples up to the last reading of `boot_id` at `mono_s` and `wall_s`, if there is one.

    `kernel` are observations of cores up to `seen_s`. `live`: a recorder holds the directory;
    `problem`: it can write nothing (`None`: unknown); `alarm`: one of its alarms is going on.
    """

    samples: Samples
    boot_id: str
    mono_s: float
    wall_s: float | None
    live: bool
    kernel: Counts | None = None
    seen_s: float = 0.0
    problem: bool | None = None
    alarm: bool = False


class CurrentSegment(Segment):
    """A segment of which, while it is open, only what is current on a healthy node is read: most
    bytes are about processes and cgroups."""

    only = frozenset((READING, *map(table, KEPT.every)))


class MetricsWork:
    """Answers "judged" and "current"; see `explorer.tiles.processes.Work`."""

    def __init__(self, path: Path) -> None:
        all_detectors()  # the same
        all_rules()
        self._followed = GrowingRecording(path, CurrentSegment)
        self._whole: GrowingRecording | None = None
        #: The last readings, followed since the recording was last read.
        self.tail: Tail | None = None
        #: Up to where observations of cores were answered last.
        self._seen_s = -inf

    @property
    def problems_so_far(self) -> list[str]:
        return self._followed.recording.problems

    def prepare(self, name: str) -> None:
        if name == "judged":
            self._read_whole()

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Answer:
        followed = self._followed
        if name == "judged":
            followed = self._whole or self._read_whole()
        else:
            self._follow(*arguments)
        status = read_status(followed.recording.path)
        live = is_locked(followed.recording.path)
        if live and not followed.recording.segments:  # its first ones take a few seconds
            found = Answer(Samples(), "", -inf, None, live=True)
        elif name == "judged":
            found = _judged(followed.recording)
        else:
            found = self._current(*arguments)
            add_status(found.samples, status)
        problem = cannot_write(status, FRESH_S) if live else None
        alarm = live and status.get("alarm") is True
        return found._replace(live=live, problem=problem, alarm=alarm)

    def _follow(self, since_s: float, _: float) -> None:
        """Read what was appended, or else as much as `current` needs."""
        if self.tail is None or since_s != self._seen_s or not self.tail.follow():
            self.tail = None
            self._followed.refresh()

    def _current(self, since_s: float, span_s: float) -> Answer:
        """The last readings; see `current.current`."""
        if self.tail is None:
            recording = self._followed.recording
            seen = window(recording, last_seconds(recording, SPAN_S)).window
            self.tail = Tail(recording, seen, KEPT, SPAN_S)
        try:
            span, found = self.tail.span, current(self.tail.window, since_s, span_s)
        except NotRead:  # the node is in trouble: a task is to be named
            recording = self._read_whole().recording
            span = last_seconds(recording, SPAN_S)
            found = current(window(recording, span).window, since_s, span_s)
        self._seen_s = found.seen_s
        known = found.samples, span.boot_id, *span.end
        return Answer(*known, live=False, kernel=found.kernel, seen_s=found.seen_s)

    def _read_whole(self) -> GrowingRecording:
        if self._whole is None:
            self._whole = GrowingRecording(self._followed.recording.path)
        self._whole.refresh()
        return self._whole


class Judged(NamedTuple):
    """A window of a recording, which ends with its last reading, and the verdict on it."""

    span: Span
    window: Window
    diagnosis: Diagnosis


def judge_last(recording: Recording) -> Judged:
    """The verdict on the last minutes: the one of the metrics and of a Node's condition."""
    span = last_seconds(recording, JUDGED_S)
    seen = window(recording, span).window
    return Judged(span, seen, diagnose(seen))


def _judged(recording: Recording) -> Answer:
    span, seen, diagnosis = judge_last(recording)
    return Answer(judged(seen, diagnosis), span.boot_id, *span.end, live=False)


def last_seconds(recording: Recording, seconds: float) -> Span:
    """The last seconds of a recording; `StoreError` if nothing is recorded yet."""
    if not recording.segments:
        raise StoreError(f"{recording.path}: nothing is recorded yet")
    last = recording.segments[-1]
    mono_s, wall_s = last.end
    return Span(last.boot_id, (mono_s - seconds, wall_s - seconds), (mono_s, wall_s))
