"""The last readings of a recording that is being written, as a window that is kept up to date.

A window of a recording reads its tables again for every span. Metrics of now need little of that
every few seconds: of most tables the last reading, of a few those of some seconds. So a `Tail`
begins with what such a window has, as rows, and adds what is appended to the open segment. Of most
flushes it decodes only the list of readings.

It goes on only while nothing else happens than whole flushes, appended to the same segment. After
anything else (the segment was sealed, another recorder began, damage, a pause, a new event) it has
to begin again with a window of the recording.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sexton.errors import NotRead, StoreError
from sexton.model.row import Row, table
from sexton.model.window import Batch, Bounds, SourceState, Window, longest_step
from sexton.replay.span import Span
from sexton.replay.window import OF_A_MOMENT
from sexton.store.arrays import numbers, values
from sexton.store.journal import READING, Pieces, flushes_since, rows_in
from sexton.store.layout import ASIDE
from sexton.store.recording import Recording, Segment, states_from
from sexton.store.schema import MONO, WALL, grouped, rows_of, tables

_Batches = tuple[Batch[Any], ...]


class _Reading(NamedTuple):
    """When a table was read, and how many rows it had."""

    mono_s: float
    wall_s: float
    rows: int


class Kept(NamedTuple):
    """The tables to follow: of `last` only the last reading; of `some` those of so many seconds
    before the last `follow`, and what came since; and `events`, which go back as far as the
    recording does: a new one ends the tail."""

    last: tuple[type[Row], ...]
    some: Mapping[type[Row], float]
    events: tuple[type[Row], ...]

    @property
    def every(self) -> tuple[type[Row], ...]:
        return (*self.last, *self.some, *self.events)


class Tail:
    """Follows the open segment at the end of a recording, from a window of its last `span_s`
    seconds on."""

    def __init__(self, recording: Recording, window: Window, kept: Kept, span_s: float) -> None:
        self._segment = recording.segments[-1]
        self._covered = self._segment.covered
        self._open = _open_segments(self._segment)
        self._kept, self._span_s = kept, span_s
        self._states: tuple[SourceState, ...] = tuple(window.states.values())
        self._first, self._end = (window.start_mono, window.start), self._segment.end
        found = {kind: window.batches(kind) or () for kind in (*kept.some, *kept.events)}
        found |= {kind: (window.edges(kind) or ())[1:] for kind in kept.last}
        self._batches: dict[type[Row], _Batches] = found

    @property
    def span(self) -> Span:
        """The seconds of the window."""
        mono_s, wall_s = self._end
        start = max(self._first, (mono_s - self._span_s, wall_s - self._span_s))
        return Span(self._segment.boot_id, start, self._end)

    @property
    def window(self) -> Window:
        """The window now; `NotRead` for tables that are not followed."""
        span = self.span
        bounds = Bounds(span.start[1], span.end[1], span.start[0], span.end[0])
        providers = self._segment.providers
        return _Followed(self._batches, self._states, providers, bounds, self._kept.every)

    def follow(self) -> bool:
        """Add what was appended; false if the recording has to be read again."""
        if self._covered is None or _open_segments(self._segment) != self._open:
            return False
        covered, self._covered = self._covered, None
        try:
            new = flushes_since(self._segment.path, *covered)
            if new is None:
                return False
            if READING in new.pieces:
                self._add(new.pieces)
        except (StoreError, OSError):
            return False
        if new.states is not None:
            self._states = states_from(new.states)
        self._covered = new.length, new.ends
        return True

    def _add(self, pieces: Pieces) -> None:
        """`StoreError` if there is anything that is not usual."""
        before = self._end[0]
        read = self._readings(pieces)
        start = self._end[0] - self._span_s
        if before < start:
            raise StoreError("a pause")
        for kind in self._kept.every:
            known, times = self._batches[kind], read.get(kind, [])
            if kind in self._kept.some:
                since = max(start, before - self._kept.some[kind])
                times = _following(known, times)
                new = self._rows(kind, times, pieces)
                self._batches[kind] = _since(kind, (*known, *new), since)
            elif kind in self._kept.last:
                new = self._rows(kind, times[-1:], pieces)
                self._batches[kind] = _since(kind, new or known, start)
            elif any(reading.rows for reading in times):
                raise StoreError("events")
            elif times and not known:
                self._batches[kind] = (Batch(times[0].mono_s, times[0].wall_s, ()),)

    def _readings(self, pieces: Pieces) -> dict[type[Row], list[_Reading]]:
        found = rows_in(self._segment.path, READING, pieces[READING])
        columns = [values(found.column(name)) for name in ("table", MONO, WALL, "rows")]
        kinds = tables()
        made: dict[type[Row], list[_Reading]] = defaultdict(list)
        for name, mono_s, wall_s, rows in zip(*columns, strict=True):
            self._end = max(self._end, (mono_s, wall_s))
            if name in kinds:
                made[kinds[name]].append(_Reading(mono_s, wall_s, rows))
        return made

    def _rows(self, kind: type[Row], times: Sequence[_Reading], pieces: Pieces) -> _Batches:
        """These readings with their rows; `StoreError` if the last of the table are not theirs."""
        if not any(reading.rows for reading in times):
            return tuple(Batch(mono, wall, ()) for mono, wall, _ in times)
        mine = pieces.get(table(kind), ())
        found = rows_in(self._segment.path, table(kind), mine[-1:] if len(times) == 1 else mine)
        chosen = np.flatnonzero(numbers(found.column(MONO)) >= times[0].mono_s)
        places, fields = grouped(kind, found, chosen)
        rows = rows_of(kind, fields)
        parts = [slice(*places.get(reading.mono_s, (0, 0))) for reading in times]
        listed = [reading.rows for reading in times]
        if len(rows) != sum(listed) or [part.stop - part.start for part in parts] != listed:
            raise StoreError("rows of other readings than are listed")
        together = zip(times, parts, strict=True)
        return tuple(Batch(at.mono_s, at.wall_s, tuple(rows[part])) for at, part in together)


class _Followed(Window):
    """A window of some tables. Of others nothing is known, not even whether they were read."""

    def __init__(
        self,
        batches: Mapping[type[Row], _Batches],
        states: Sequence[SourceState],
        providers: Mapping[type[Row], str],
        bounds: Bounds,
        followed: Sequence[type[Row]],
    ) -> None:
        super().__init__(batches, states, providers, bounds)
        self._batches = _Some(self._batches, followed)


class _Some(dict[type[Row], Any]):
    def __init__(self, known: Mapping[type[Row], Any], followed: Sequence[type[Row]]) -> None:
        super().__init__(known)
        self._followed = followed

    def get(self, kind: type[Row], default: Any = None) -> Any:
        return super().get(kind, default) if kind in self else default

    def __contains__(self, kind: object) -> bool:
        if kind not in self._followed:
            raise NotRead(f"{kind} is not followed")
        return super().__contains__(kind)


def _following(known: _Batches, times: list[_Reading]) -> list[_Reading]:
    """The same readings; `StoreError` if one of them does not follow the one before."""
    mono = np.array([*(batch.mono_s for batch in known), *(reading.mono_s for reading in times)])
    steps = np.diff(mono)
    if (steps <= 0).any() or (steps > longest_step(mono)).any():
        raise StoreError("a gap")
    return times


def _since(kind: type[Row], batches: _Batches, start_s: float) -> _Batches:
    """Readings from a moment on. If there are none, the last one, unless it is about a moment."""
    some = tuple(batch for batch in batches if batch.mono_s >= start_s)
    return some or (() if kind in OF_A_MOMENT else batches[-1:])


def _open_segments(segment: Segment) -> list[str]:
    try:
        names = os.listdir(segment.path.parent)
    except OSError:
        return []
    return sorted(name for name in names if not name.startswith(ASIDE))
