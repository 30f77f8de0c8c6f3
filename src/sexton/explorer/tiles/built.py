"""A lane's builder, and how far it was fed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from sexton.explorer.tiles.build import Clock, Part
from sexton.explorer.tiles.registry import Builder
from sexton.replay.span_reader import SegmentReader
from sexton.store.recording import Recording, Segment

#: Segments whose annexes are looked for again: stacks are decoded some minutes later.
ANNEXES_LATE = 30
#: Segments that are read before they are needed, where there are not only a few.
_AHEAD, _FEW = 3, 16


class Grown(NamedTuple):
    """A builder that was fed, and the names of the segments that it need not be fed again."""

    builder: Builder
    fed: set[str]


class Built:
    """Whoever asks holds `lock` while it is fed and while it draws. One that is built `alone` has a
    core of its own and no thread that reads ahead."""

    def __init__(self, build: Callable[[], Builder], alone: bool = False) -> None:
        self._alone = alone
        self.lock = threading.Lock()
        self.builder = build()
        self._fed: set[str] = set()
        self._seen: Recording | None = None

    @property
    def begun(self) -> bool:
        """Was it fed anything?"""
        return self._seen is not None

    @property
    def grown(self) -> Grown:
        """What another process can go on with."""
        return Grown(self.builder, self._fed)

    def take(self, recording: Recording, grown: Grown) -> None:
        """What another process has built of a recording; under its lock."""
        self.builder, self._fed = grown
        self._seen = recording

    def follow(self, recording: Recording) -> Builder:
        """Feed it what it has not seen; under its lock."""
        if recording is self._seen:
            return self.builder
        names = [each.name for each in recording.segments]
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
            self.builder.forget(min(each.start[1] for each in recording.segments))
        self._fed &= {*names}
        self._seen = recording
        return self.builder

    def _parts(self, wanted: list[Segment]) -> Iterator[Part]:
        """One after the other; of many the next ones are read while one is worked on."""
        parts = [Part(SegmentReader(segment, False), Clock(segment)) for segment in wanted]
        if len(parts) < _FEW or self._alone:
            yield from parts
            return
        with ThreadPoolExecutor(1, "sexton-read") as reader:
            reading: deque[Future[None]] = deque()
            for at, part in enumerate(parts):
                while len(reading) < _AHEAD and at + len(reading) < len(parts):
                    reading.append(reader.submit(self.builder.ahead, parts[at + len(reading)]))
                reading.popleft().result()
                yield part
