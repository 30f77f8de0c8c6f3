"""Lanes built from a recording: each builder, how far it was fed, and all of them at once.

A night is some tens of files, and reading them is Arrow and numpy, which release the interpreter's
lock: threads are enough.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

import pyarrow as pa

from sexton.explorer.tiles.build import Clock, Part
from sexton.explorer.tiles.registry import Builder, Declared
from sexton.replay.segment_reader import SegmentReader
from sexton.store.recording import Recording, Segment

#: Segments whose annexes are looked for again: stacks are decoded some minutes later.
ANNEXES_LATE = 30
#: Segments that are read before they are needed, where there are not only a few.
_AHEAD, _FEW = 2, 4
#: Lanes that are built at once; the thread that answers requests needs a core too.
_THREADS = 2


class LaneFeed:
    """A lane's builder. Hold `lock` while it is fed and while it draws."""

    def __init__(self, build: Callable[[], Builder]) -> None:
        self.lock = threading.Lock()
        self.builder = build()
        self._fed: set[str] = set()
        self._seen: Recording | None = None

    def follow(self, recording: Recording) -> Builder:
        """Feed it what it has not seen; under its lock."""
        if recording is self._seen:
            return self.builder
        names = [segment.name for segment in recording.segments]
        late = {*names[-ANNEXES_LATE:]} if self.builder.comes_late else set()
        wanted = [
            segment
            for segment in recording.segments
            if segment.name not in self._fed or segment.name in late
        ]
        for part in self._parts(wanted):
            self.builder.feed(part)
            # One that is open and not the last is of a recorder that died: it grows no more.
            if part.book.segment.sealed or part.book.segment.name != names[-1]:
                self._fed.add(part.book.segment.name)
        self.builder.settle()
        if names and self._fed - {*names}:
            self.builder.forget(min(segment.start[1] for segment in recording.segments))
        self._fed &= {*names}
        self._seen = recording
        return self.builder

    def _parts(self, wanted: list[Segment]) -> Iterator[Part]:
        """One after the other; of many the next ones are read while one is worked on."""
        parts = [Part(SegmentReader(segment, False), Clock(segment)) for segment in wanted]
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
) -> Iterator[str]:
    """Build lanes in this order, and give the id of each when it is done."""

    def build(lane: str) -> None:
        with feeds[lane].lock:
            feeds[lane].follow(recording)

    with ThreadPoolExecutor(_THREADS, "sexton-build") as pool:
        started = {pool.submit(build, lane.id): lane.id for lane in wanted}
        for done in as_completed(started):
            done.result()
            yield started[done]
    pa.default_memory_pool().release_unused()
