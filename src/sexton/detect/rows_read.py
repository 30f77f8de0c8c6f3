"""A window that records which rows are read: findings and links report them as their basis.

A detector gets a `Witness` of a window and reads it as usual. The witness notes which tables were
read, and whether all of a table or only its last reading. Rows are counted, never read a second
time: a window may be twelve hours long.

>>> from sexton.model.rows.node import Node
>>> from sexton.model.window import Batch
>>> node = Node("n", "6.1", *(None,) * 11)
>>> witness = Witness(Window({Node: [Batch(1.0, 101.0, (node,)), Batch(2.0, 102.0, (node,))]}))
>>> with witness.noting() as noted:
...     seen = witness.latest(Node)
>>> witness.rows(noted)
(Rows(table='node', rows=1, start=102.0, end=102.0),)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

from sexton.model.finding import Rows
from sexton.model.row import Row, table
from sexton.model.window import Batch, Columns, SourceState, Wanted, Window

R = TypeVar("R", bound=Row)
T = TypeVar("T")

#: The row types read, and whether all readings were or only the last one.
Noted = dict[type[Row], bool]


class Witness(Window):
    """The same window as `window`; notes what is read."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self.states, self._providers, self._kept = window.states, window._providers, window._kept
        self.start, self.end = window.start, window.end
        self.start_mono, self.end_mono = window.start_mono, window.end_mono
        self._notes: list[Noted] = []
        self._whole: dict[type[Row], Rows] = {}

    @contextmanager
    def noting(self) -> Iterator[Noted]:
        """Notes what is read inside the block; so does any outer block."""
        noted: Noted = {}
        self._notes.append(noted)
        try:
            yield noted
        finally:
            self._notes.pop()
            self.note(noted)

    def note(self, noted: Noted) -> None:
        """Notes all this as read."""
        if self._notes:
            mine = self._notes[-1]
            for kind, whole in noted.items():
                mine[kind] = whole or mine.get(kind, False)

    def batches(self, kind: type[R]) -> tuple[Batch[R], ...] | None:
        self.note({kind: True})
        return self._window.batches(kind)

    def between(self, kind: type[R], start: float, end: float) -> tuple[Batch[R], ...]:
        self.note({kind: True})
        return self._window.between(kind, start, end)

    def matching(self, kind: type[R], field: str, value: str) -> Iterator[Batch[R]]:
        self.note({kind: True})
        return self._window.matching(kind, field, value)

    def columns(
        self, kind: type[Row], names: Sequence[str], wanted: Wanted | None = None
    ) -> Iterator[Columns]:
        self.note({kind: True})
        return self._window.columns(kind, names, wanted)

    def edges(self, kind: type[R]) -> tuple[Batch[R], Batch[R]] | None:
        self.note({kind: True})
        return self._window.edges(kind)

    def changes(self, kind: type[R], fields: Sequence[str] | None = None) -> Iterator[R]:
        self.note({kind: True})
        return self._window.changes(kind, fields)

    def distinct(self, kind: type[Row], fields: Sequence[str]) -> list[tuple[Any, ...]]:
        self.note({kind: True})
        return self._window.distinct(kind, fields)

    def earlier(self, kind: type[R]) -> tuple[Batch[R], ...]:
        self.note({kind: True})
        return self._window.earlier(kind)

    def read(self, kind: type[Row]) -> bool:
        self.note({kind: True})
        return self._window.read(kind)

    def latest(self, kind: type[R]) -> tuple[R, ...] | None:
        self.note({kind: False})
        return self._window.latest(kind)

    def why_missing(self, kind: type[Row]) -> SourceState:
        return self._window.why_missing(kind)

    def bounds_of(self, kind: type[Row]) -> tuple[float, float] | None:
        return self._window.bounds_of(kind)

    def row_count(self, kind: type[Row]) -> int:
        self.note({kind: True})
        return self._window.row_count(kind)

    def wall(self, mono_s: float) -> float:
        return self._window.wall(mono_s)

    def mono(self, wall_s: float) -> float:
        return self._window.mono(wall_s)

    def keep(self, name: Hashable, make: Callable[[], T]) -> T:
        """Every caller that gets a kept value counts as having read the rows it was made from."""
        with self.noting() as noted:
            found = super().keep(name, make)
        self.note(super().keep(("rows behind", name), lambda: noted))
        return found

    def rows(self, noted: Noted) -> tuple[Rows, ...]:
        """The rows noted, by table; without tables that the window does not have."""
        found = (self._rows(kind, whole) for kind, whole in noted.items())
        known = (rows for rows in found if rows is not None)
        return tuple(sorted(known, key=lambda name: name.table))

    def _rows(self, kind: type[Row], whole: bool) -> Rows | None:
        edges = self._window.bounds_of(kind)
        if edges is None:
            return None
        first, last = map(self._window.wall, edges)
        if not whole:
            return Rows(table(kind), len(self._window.latest(kind) or ()), last, last)
        if kind not in self._whole:
            self._whole[kind] = Rows(table(kind), self._window.row_count(kind), first, last)
        return self._whole[kind]


def witness(window: Window) -> Witness:
    """A witness of this window; the window itself if it already is one."""
    return window if isinstance(window, Witness) else Witness(window)


def remembered(function: Callable[[Window], T]) -> Callable[[Window], T]:
    """Keeps a function's result with the window: detectors, links and reports all need it."""
    name = (function.__module__, function.__qualname__)

    @wraps(function)
    def answer(window: Window) -> T:
        return window.keep(name, lambda: function(window))

    return answer
