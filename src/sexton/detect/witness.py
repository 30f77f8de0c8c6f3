"""A window that notes what is read of it: the one place where claims get their rows from.

Whoever judges a window is given a `Witness` of it and asks it as ever; which tables were read, all
of a table or only its last reading, is noted meanwhile. Only batches are counted, never their rows:
a window of twelve hours is not walked a second time.

>>> from sexton.model.node import Node
>>> from sexton.model.window import Batch
>>> node = Node("n", "6.1", *(None,) * 11)
>>> witness = Witness(Window({Node: [Batch(1.0, 101.0, (node,)), Batch(2.0, 102.0, (node,))]}))
>>> with witness.noting() as noted:
...     seen = witness.latest(Node)
>>> witness.rows(noted)
(Rows(table='node', rows=1, start=102.0, end=102.0),)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TypeVar

from sexton.model.finding import Rows
from sexton.model.row import Row, table
from sexton.model.window import Batch, Window

R = TypeVar("R", bound=Row)
T = TypeVar("T")

#: What was read, and whether all of it was (else its last reading alone).
Noted = dict[type[Row], bool]


class Witness(Window):
    """The same rows as `window`, with its readers remembered."""

    def __init__(self, window: Window) -> None:
        vars(self).update(vars(window))  # shares every table, copies none
        self._notes: list[Noted] = []
        self._whole: dict[type[Row], Rows] = {}

    @contextmanager
    def noting(self) -> Iterator[Noted]:
        """Notes what is read inside; whoever notes around it has read that too."""
        noted: Noted = {}
        self._notes.append(noted)
        try:
            yield noted
        finally:
            self._notes.pop()
            self.note(noted)

    def note(self, noted: Noted) -> None:
        """As if all this had just been read."""
        if self._notes:
            mine = self._notes[-1]
            for kind, whole in noted.items():
                mine[kind] = whole or mine.get(kind, False)

    def batches(self, kind: type[R]) -> tuple[Batch[R], ...] | None:
        self.note({kind: True})
        return super().batches(kind)

    def latest(self, kind: type[R]) -> tuple[R, ...] | None:
        self.note({kind: False})
        items = super().batches(kind)
        return items[-1].rows if items else None

    def rows(self, noted: Noted) -> tuple[Rows, ...]:
        """What stands behind a claim, by table; what was asked for and never read is not."""
        found = (self._rows(kind, whole) for kind, whole in noted.items())
        known = (each for each in found if each is not None)
        return tuple(sorted(known, key=lambda each: each.table))

    def _rows(self, kind: type[Row], whole: bool) -> Rows | None:
        items = super().batches(kind)
        if not items:
            return None
        first, last = items[0], items[-1]
        if not whole:
            return Rows(table(kind), len(last.rows), last.wall_s, last.wall_s)
        if kind not in self._whole:
            number = sum(len(batch.rows) for batch in items)
            self._whole[kind] = Rows(table(kind), number, first.wall_s, last.wall_s)
        return self._whole[kind]


def witness(window: Window) -> Witness:
    """`window` itself where it takes notes already."""
    return window if isinstance(window, Witness) else Witness(window)


def remembered(function: Callable[[Window], T]) -> Callable[[Window], T]:
    """Keeps the answer for the last window: detectors, links and reports ask the same question.

    Whoever is given a kept answer has read what it was made of.
    """
    kept: list[tuple[Window, T, Noted]] = []

    @wraps(function)
    def answer(window: Window) -> T:
        if kept and kept[0][0] is window:
            if isinstance(window, Witness):
                window.note(kept[0][2])
            return kept[0][1]
        noted: Noted = {}
        if isinstance(window, Witness):
            with window.noting() as noted:
                found = function(window)
        else:
            found = function(window)
        kept[:] = [(window, found, noted)]
        return found

    return answer
