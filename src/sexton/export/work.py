"""What the exporter asks about a recording: each question is answered by a process of its own.

`sexton.explorer.tiles.processes` forks it from a server that keeps the recording open. Judging five
minutes takes a moment of a core and tens of megabytes; the process that answers scrapes must not
pay for that, nor hang with a disk, nor end with a reader that crashes.
"""

from __future__ import annotations

import time
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

# Used by what reads; imported here, not in each process that is forked (60 ms of CPU).
import numpy.ma  # noqa: F401
import pyarrow.compute  # noqa: F401

from sexton.detect.registry import all_detectors
from sexton.errors import StoreError
from sexton.explain.diagnosis import diagnose
from sexton.explain.registry import all_rules
from sexton.explorer.tiles.follow import GrowingRecording
from sexton.export.current import current
from sexton.export.judged import judged
from sexton.export.pace import FRESH_S, JUDGED_S
from sexton.export.recorder import add_status, cannot_write, read_status
from sexton.export.samples import Counts, Samples
from sexton.model.diagnosis import Diagnosis
from sexton.model.window import Window
from sexton.replay.span import Span
from sexton.replay.window import window
from sexton.store.recording import Recording

#: How much is read for what is current: two readings of every table that is read at least each half
#: minute.
CURRENT_S = 75.0


class Answer(NamedTuple):
    """Samples up to the last reading of `boot_id` at `mono_s` and `wall_s`, if there is one.

    `kernel` are observations of cores up to `seen_s`. `live`: a recorder holds the directory;
    `problem`: it can write nothing (`None`: unknown).
    `spent_s` is the CPU time of this answer, `served_s` that of the process it was forked from.
    """

    samples: Samples
    boot_id: str
    mono_s: float
    wall_s: float | None
    live: bool
    kernel: Counts | None = None
    seen_s: float = 0.0
    problem: bool | None = None
    spent_s: float = 0.0
    served_s: float = 0.0


class MetricsWork:
    """Answers "judged" and "current"; see `explorer.tiles.processes.Work`."""

    def __init__(self, path: Path) -> None:
        all_detectors()  # the same
        all_rules()
        self._followed = GrowingRecording(path)
        self._served_s = 0.0

    @property
    def problems_so_far(self) -> list[str]:
        return self._followed.recording.problems

    def prepare(self) -> None:
        self._followed.refresh()
        self._served_s = time.process_time()

    def answer(self, name: str, arguments: tuple[Any, ...]) -> Answer:
        recording, live = self._followed.recording, self._followed.live
        status = read_status(recording.path)
        if live and not recording.segments:  # its first readings take a few seconds
            found = Answer(Samples(), "", -inf, None, live)
        elif name == "judged":
            found = _judged(recording)
        else:
            found = _current(recording, *arguments)
            add_status(found.samples, status)
        return found._replace(
            live=live,
            problem=cannot_write(status, FRESH_S) if live else None,
            spent_s=time.process_time(),
            served_s=self._served_s,
        )


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


def _current(recording: Recording, since_s: float, span_s: float) -> Answer:
    """The last readings; see `current.current`."""
    span = last_seconds(recording, CURRENT_S)
    found = current(window(recording, span).window, since_s, span_s)
    known = found.samples, span.boot_id, *span.end
    return Answer(*known, live=False, kernel=found.kernel, seen_s=found.seen_s)


def last_seconds(recording: Recording, seconds: float) -> Span:
    """The last seconds of a recording; `StoreError` if nothing is recorded yet."""
    if not recording.segments:
        raise StoreError(f"{recording.path}: nothing is recorded yet")
    last = recording.segments[-1]
    mono_s, wall_s = last.end
    return Span(last.boot_id, (mono_s - seconds, wall_s - seconds), (mono_s, wall_s))
