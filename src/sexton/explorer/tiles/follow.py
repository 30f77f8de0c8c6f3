"""A recording that may grow while it is open, and the lanes that are built from it.

Sealed segments never change, so they are opened once; of the open one, what was appended is read
as long as its journal grows. Segments that retention deletes are dropped; what was drawn of them
stays.

A night is some tens of files. Reading them is Arrow and numpy, which release the interpreter's
lock: threads are enough.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from sexton.errors import StoreError
from sexton.explorer.tiles.build import Clock, Part
from sexton.explorer.tiles.registry import Builder, Declared
from sexton.model.text import printable
from sexton.replay.span_reader import readers
from sexton.store.journal import JOURNAL, EmptySegment
from sexton.store.layout import current, is_locked, parse_name
from sexton.store.recording import Recording, Segment

#: Segments whose annexes are read again: stacks are decoded some minutes after they were taken.
ANNEXES_LATE = 30
#: Segments that are read ahead, if there are more than a few.
_AHEAD, _FEW = 2, 4
#: Lanes that are built at once; the thread that answers requests needs a core too.
_THREADS = 2


class GrowingRecording:
    """`recording` is replaced when something changed; readers keep the one they have. Its segments
    are of this `kind`."""

    def __init__(self, path: Path, kind: type[Segment] = Segment) -> None:
        self.recording = Recording(path, kind)
        self._kind = kind
        self.live = is_locked(path)
        self._sizes: dict[str, int] = {}

    def refresh(self) -> bool:
        """Look again. Has anything changed?"""
        path = self.recording.path
        known = {segment.name: segment for segment in self.recording.segments}
        self.live = is_locked(path)
        found: dict[str, Segment] = {}
        problems = list(self.recording.problems)
        if known and not path.is_dir():  # unmounted or moved
            self._report(f"{printable(str(path))}: no longer exists")
            return False
        changed = False
        for place in ("open", "segments"):
            for name in _names(path / place):
                old = known.get(name)
                if old is not None and self._is_same(old, place):
                    found[name] = old
                    continue
                new = self._opened(path / place / name, problems, old)
                if new is not None:
                    found[name] = new
                    changed = True
        if not changed and found.keys() == known.keys():
            return False
        retired = tuple(known.keys() - found.keys())
        made = Recording.__new__(Recording)
        made.path = path
        made.problems = [problem for problem in problems if not problem.startswith(retired)]
        made.segments = sorted(found.values(), key=lambda segment: segment.sequence)
        for segment in made.segments:
            segment.report_to(made.problems)
        self.recording = made
        return changed

    def _opened(self, path: Path, problems: list[str], before: Segment | None) -> Segment | None:
        name = parse_name(path.name)
        if name is None or path.is_symlink() or not path.is_dir():
            return None
        try:
            return self._kind(path, name, [], before=before)
        except EmptySegment:
            return None
        except StoreError as error:
            problem = printable(str(error))
            if os.path.lexists(path) and problem not in problems:  # else sealed or retired just now
                problems.append(problem)
            return None

    def _report(self, problem: str) -> None:
        if problem not in self.recording.problems:
            self.recording.problems.append(problem)

    def _is_same(self, segment: Segment, place: str) -> bool:
        if segment.sealed:
            return place == "segments"
        if place != "open":
            return False  # it was sealed
        try:
            size = os.stat(segment.path / JOURNAL).st_size
        except OSError:
            return True
        before = self._sizes.get(segment.name)
        self._sizes = {segment.name: size}
        return before == size


def _names(place: Path) -> list[str]:
    try:
        names = [parse_name(name) for name in os.listdir(place)]
    except OSError:
        return []
    return [name.text for name in current(filter(None, names))]


class LaneFeed:
    """A lane's builder. Hold `lock` while it is fed and while it draws."""

    def __init__(self, build: Callable[[], Builder]) -> None:
        self.lock = threading.Lock()
        self.builder = build()
        self._fed: set[str] = set()
        self._seen: Recording | None = None

    def ready(self, recording: Recording) -> Builder:
        """The builder, fed with everything recorded so far."""
        with self.lock:
            return self.follow(recording)

    def follow(self, recording: Recording) -> Builder:
        """Feed the builder what it has not seen; call with the lock held."""
        if recording is self._seen:
            return self.builder
        names = [segment.name for segment in recording.segments]
        late = {*names[-ANNEXES_LATE:]} if self.builder.comes_late else set()
        wanted = ({*names} - self._fed) | late
        books = readers(recording.segments, lambda segment: segment.name in wanted)
        for part in self._parts([Part(book, Clock(book.segment)) for book in books]):
            self.builder.feed(part)
            # An open segment that is not the last is from a recorder that died: it will not grow.
            if part.book.segment.sealed or part.book.segment.name != names[-1]:
                self._fed.add(part.book.segment.name)
        self.builder.settle()
        if names and self._fed - {*names}:
            self.builder.forget(min(segment.start[1] for segment in recording.segments))
        self._fed &= {*names}
        self._seen = recording
        return self.builder

    def _parts(self, parts: list[Part]) -> Iterator[Part]:
        """In order; if there are many, the next ones are read while one is used."""
        if len(parts) < _FEW:
            yield from parts
            return
        with ThreadPoolExecutor(1, "sexton-read") as reader:
            reading: deque[Future[None]] = deque()
            for at, part in enumerate(parts):
                while len(reading) < _AHEAD and at + len(reading) < len(parts):
                    reading.append(reader.submit(self.builder.ahead, parts[at + len(reading)]))
                reading.popleft().result()
                yield part


def build_lanes(
    recording: Recording, wanted: Sequence[Declared], feeds: Mapping[str, LaneFeed]
) -> None:
    """Build lanes, some at once, in this order."""
    with ThreadPoolExecutor(_THREADS, "sexton-build") as pool:
        for done in [pool.submit(feeds[lane.id].ready, recording) for lane in wanted]:
            done.result()
    pa.default_memory_pool().release_unused()
