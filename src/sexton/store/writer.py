"""The writing side of a recording: a thread between the sampler and the disk.

The sampler must not wait for a disk, which may be full, read-only, or hung. So readings are handed
over every few seconds and written by a separate thread; what cannot be written waits in memory,
bounded, and is written later. Dropped rows are counted and reported.

Flushes go to the open segment; when its time is over it is sealed, and retention deletes what is
too old or too much. When the disk is full the oldest unpinned segment is deleted, one per attempt:
a flight recorder's last minutes are worth more than its first.
"""

from __future__ import annotations

import contextlib
import errno
import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sexton import __version__
from sexton.errors import StoreError
from sexton.model.row import Row
from sexton.model.window import Batch, SourceState, Window
from sexton.store.journal import OpenSegment
from sexton.store.layout import prepare, segment_name, segments_in
from sexton.store.retention import Limits, Retention
from sexton.store.sealer import InProcessSealer, Outcome, Sealer

#: Starting the sealing process costs as much as sealing some minutes.
SEGMENT_S = 600.0
#: What may wait in memory for a failing disk: rows not encoded yet, and encoded bytes.
MOST_WAITING_ROWS = 200_000
MOST_WAITING_BYTES = 16 << 20
_PATIENCE_S = 20.0
#: For a recording that is read back within seconds.
_UNLIMITED = Limits(age_s=10 * 365 * 86400.0, most_bytes=1 << 40)

Pending = Mapping[type[Row], Sequence[Batch[Any]]]


@dataclass(slots=True)
class Written:
    """Totals so far; `problem` is why the last attempt failed, empty if it did not."""

    bytes: int = 0
    segments: int = 0
    lost_rows: int = 0
    refused_rows: int = 0
    problem: str = ""
    #: Dropped by the recorder's own thread, because the writer's was blocked by the disk.
    dropped_rows: int = 0
    notes: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=1000))


@dataclass(frozen=True, slots=True)
class _Flush:
    pending: Pending
    states: Sequence[SourceState]
    moment: tuple[float, float]
    last: bool = False

    @property
    def rows(self) -> int:
        return sum(len(batch.rows) for batches in self.pending.values() for batch in batches)


class Writer:
    """Takes readings from one thread and writes them to disk from another."""

    def __init__(
        self,
        directory: Path,
        header: Mapping[str, Any],
        limits: Limits,
        segment_s: float = SEGMENT_S,
        sealer: Sealer | None = None,
    ) -> None:
        self.directory = directory
        self.written = Written()
        self._header = dict(header)
        self._segment_s = segment_s
        self._retention = Retention(directory, limits)
        self._sealer: Sealer = InProcessSealer(directory) if sealer is None else sealer
        self._boot_id = str(header.get("boot_id", ""))
        self._pending: dict[type[Row], list[Batch[Any]]] = defaultdict(list)
        self._flushes: queue.SimpleQueue[_Flush] = queue.SimpleQueue()
        self._backlog: deque[_Flush] = deque()
        self._open: OpenSegment | None = None
        self._opened_s = 0.0
        self._noted_refused = 0
        #: Rows handed over and taken so far: each counter is written by one thread only.
        self._handed = self._taken = 0
        existing = [*segments_in(directory / "open"), *segments_in(directory / "segments")]
        self._sequence = max((name.last for name in existing), default=0)
        self._thread = threading.Thread(target=self._loop, name="sexton-writer", daemon=True)
        self._thread.start()

    def append(self, kind: type[Row], batch: Batch[Any]) -> None:
        """Take one reading; it goes out with the next flush."""
        self._pending[kind].append(batch)

    def flush(self, states: Sequence[SourceState]) -> None:
        """Hand over what was appended since the last time. Does not wait."""
        self._hand_over(states, last=False)

    def close(self, states: Sequence[SourceState]) -> bool:
        """Hand over the rest, seal, and wait for that; false if the disk refused."""
        self._hand_over(states, last=True)
        self._thread.join(_PATIENCE_S)
        return not self._thread.is_alive() and not self.written.problem

    @property
    def held_bytes(self) -> int:
        """Size of the recording on disk, as last counted."""
        opened = self._open  # the writer's thread may close it meanwhile
        return self._retention.bytes + (opened.bytes if opened is not None else 0)

    def _hand_over(self, states: Sequence[SourceState], last: bool) -> None:
        pending, self._pending = self._pending, defaultdict(list)
        moment = (time.monotonic(), time.time())
        flush = _Flush(pending, tuple(states), moment, last)
        self._handed += flush.rows
        self._bound_queue()
        self._flushes.put(flush)

    def _bound_queue(self) -> None:
        """A disk that hangs blocks the writer's thread: drop the oldest flushes in the queue."""
        while self._handed - self._taken > MOST_WAITING_ROWS:
            try:
                dropped = self._flushes.get_nowait()
            except queue.Empty:
                return
            self._handed -= dropped.rows
            self.written.dropped_rows += dropped.rows
            words = f"{dropped.rows:,} rows dropped: the disk has not responded"
            self.written.notes.append(("lost", words))

    def _take(self) -> _Flush:
        flush = self._flushes.get()
        self._taken += flush.rows
        self._backlog.append(flush)
        return flush

    def _loop(self) -> None:
        while True:
            flush = self._take()
            while not self._flushes.empty():  # a slow disk: take all that came meanwhile
                flush = self._take()
            try:
                self._work(flush)
                self.written.problem = ""
            except OSError as error:
                self._refused(error, flush)
            except Exception as error:  # noqa: BLE001 - the thread must live: reported and counted
                self._broken(error)
            if flush.last:
                self._end(flush)
                return

    def _work(self, now: _Flush) -> None:
        self._note_sealed(self._sealer.done(), now)
        if self._open is not None and now.moment[0] - self._opened_s >= self._segment_s:
            self._close_open(now)
            self._sealer.start(self._sequence)
            self._note_sealed(self._sealer.done(), now)
        while self._backlog:
            flush = self._backlog[0]
            if self._open is None:
                self._start(flush)
            assert self._open is not None
            before = self._open.bytes
            # From here on the open segment has the rows, whether or not the disk accepts them.
            self._backlog.popleft()
            self._refused_rows(self._open.flush(flush.pending, flush.states))
            self.written.bytes += self._open.bytes - before

    def _refused_rows(self, rows: int) -> None:
        """Values that fit no column, from a malformed source: noted the first time and at each
        doubling, since it may happen every second."""
        self.written.refused_rows += rows
        if self.written.refused_rows >= max(1, 2 * self._noted_refused):
            self._noted_refused = self.written.refused_rows
            words = f"{self._noted_refused:,} rows so far had values that do not fit their columns"
            self.written.notes.append(("lost", words))

    def _start(self, flush: _Flush) -> None:
        name = segment_name(self._sequence + 1, flush.moment[1])
        header = {**self._header, "sequence": name.sequence}
        self._open = OpenSegment(self.directory / "open" / name.text, header)
        self._sequence = name.sequence
        self._opened_s = flush.moment[0]

    def _close_open(self, now: _Flush) -> None:
        assert self._open is not None
        if self._open.waiting_bytes:
            self._open.flush({}, now.states)
        opened, self._open = self._open, None
        opened.close()

    def _note_sealed(self, outcomes: Sequence[Outcome], now: _Flush) -> None:
        """Count what the sealer did; `OSError` if a segment could not be sealed."""
        for outcome in outcomes:
            self.written.segments += outcome.sealed
            self.written.bytes += outcome.bytes
            for words in outcome.notes:
                self.written.notes.append(("disk", words))
        if outcomes:
            self._tidy(now)
        for outcome in outcomes:
            if outcome.error:
                raise OSError(outcome.error, outcome.why)

    def _tidy(self, now: _Flush) -> None:
        open_bytes = self._open.bytes if self._open is not None else 0
        for words in self._retention.tidy(now.moment, self._boot_id, open_bytes):
            self.written.notes.append(("disk", words))

    def _refused(self, error: OSError, now: _Flush) -> None:
        """The disk refused: make room if it is full, and bound what waits in memory."""
        words = error.strerror or str(error)
        if words != self.written.problem:
            self.written.notes.append(("disk", f"cannot write: {words}"))
        self.written.problem = words
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            gone = self._retention.drop_oldest()
            if gone:
                self.written.notes.append(("disk", f"{words}: deleted {gone} to make room"))
            with contextlib.suppress(OSError):
                self._tidy(now)
        waiting = sum(flush.rows for flush in self._backlog)
        while self._backlog and waiting > MOST_WAITING_ROWS:
            dropped = self._backlog.popleft()
            waiting -= dropped.rows
            self._lost(dropped.rows)
        if self._open is not None and self._open.waiting_bytes > MOST_WAITING_BYTES:
            self._lost(self._open.drop_waiting())

    def _broken(self, error: Exception) -> None:
        """A bug of ours or Arrow's: this flush is lost, the next one starts a new segment."""
        rows = sum(flush.rows for flush in self._backlog)
        self._backlog.clear()
        self.written.problem = _first_line(error)
        if self._open is not None:
            rows += self._open.drop_waiting()
            self._open.close()
            self._open = None
        self.written.lost_rows += rows
        self.written.notes.append(("lost", f"{rows:,} rows or more: {self.written.problem}"))

    def _lost(self, rows: int) -> None:
        if rows:
            self.written.lost_rows += rows
            self.written.notes.append(("lost", f"{rows:,} rows: {self.written.problem}"))

    def _end(self, now: _Flush) -> None:
        try:
            if self._backlog:  # refused a moment ago: there may be room now
                self._work(now)
                self.written.problem = ""
            if self._open is not None:
                self._close_open(now)
            self._note_sealed(self._sealer.finish(), now)
        except OSError as error:
            self.written.problem = error.strerror or str(error)
        except Exception as error:  # noqa: BLE001 - as above: reported
            self.written.problem = _first_line(error)
        finally:
            if self._open is not None:  # not sealed: the next recorder will
                self._open.close()
                self._open = None


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0]


def write_window(window: Window, directory: Path) -> None:
    """Write a window as a recording of one segment into `directory`, which must be empty or not
    exist. Rows that fit no column are left out, as the recorder leaves them out."""
    from sexton.store.schema import tables  # Arrow, which the recorder must not load

    prepare(directory)
    node = window.node
    header = {
        "boot_id": (node.boot_id if node is not None else None) or "",
        "host": node.hostname if node is not None else "",
        "sexton": __version__,
        "providers": {},
        "periods": {},
    }
    writer = Writer(directory, header, _UNLIMITED)
    for kind in tables().values():
        for batch in window.batches(kind) or ():
            writer.append(kind, batch)
    if not writer.close(tuple(window.states.values())):
        raise StoreError(f"{directory}: {writer.written.problem or 'the disk did not answer'}")
