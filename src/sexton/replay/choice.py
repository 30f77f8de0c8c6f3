"""Readings chosen out of a long span, table by table, and the batches they make."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np

from sexton.model.cpu import Interrupt
from sexton.model.row import Row
from sexton.model.window import Batch
from sexton.replay.span_reader import Pick, Shelf, take
from sexton.replay.strain import Strain

_PAIRS = 12
_PAIR_ROWS = 4_000
#: A row of `/proc/interrupts` holds a number per core.
_HEAVY = 50


class Choice:
    """Readings chosen so far, by table and by segment."""

    def __init__(self, shelf: Shelf) -> None:
        self.shelf = shelf
        self._starts = [book.segment.start[0] for book in shelf.books]
        self._whole: dict[type[Row], dict[int, set[float]]] = defaultdict(lambda: defaultdict(set))
        self._things: dict[type[Row], dict[int, dict[float, set[Hashable]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(set))
        )
        self._linked: dict[type[Row], set[float]] = defaultdict(set)
        self._spans: dict[type[Row], list[tuple[float, float]]] = defaultdict(list)
        self._names: dict[type[Row], frozenset[str]] = defaultdict(frozenset)

    def place(self, mono_s: float) -> int:
        return max(bisect_right(self._starts, mono_s) - 1, 0)

    def readings(self, kind: type[Row], moments: Iterable[float], linked: bool = False) -> None:
        for mono in filter(self.shelf.span.holds, moments):
            self._whole[kind][self.place(mono)].add(mono)
            if linked:
                self._linked[kind].add(mono)

    def things(self, kind: type[Row], found: Mapping[float, Iterable[Hashable]]) -> None:
        for mono, keys in found.items():
            if self.shelf.span.holds(mono):
                self._things[kind][self.place(mono)][mono].update(keys)

    def link(self, kind: type[Row]) -> None:
        """Nothing happened between the readings chosen, but where the recorder was away."""
        for place, chosen in self._whole[kind].items():
            book = self.shelf.books[place]
            first = set() if book.joined else set(book.moments(kind).mono[:1].tolist())
            self._linked[kind] |= chosen - first

    def strain(self, kind: type[Row], found: Strain) -> None:
        """Keep what crossed a limit; whatever else is chosen between follows, too."""
        if found.names:
            self.things(kind, dict.fromkeys(found.moments, found.names))
        else:
            self.readings(kind, found.moments)
        self._spans[kind] += found.spans
        self._names[kind] = found.names

    def named(self, kind: type[Row], moments: Iterable[float]) -> None:
        """Of these readings what a strain is told by."""
        if self._names[kind]:
            self.things(kind, dict.fromkeys(moments, self._names[kind]))

    def stretch(self, kind: type[Row], start: float, end: float) -> list[float]:
        """Every reading between two moments."""
        found: list[float] = []
        for book in self.shelf.books[self.place(start) : self.place(end) + 1]:
            mono = self.shelf.inside(kind, book)
            found += mono[(mono >= start) & (mono <= end)].tolist()
        return found

    def edges(self, kind: type[Row]) -> None:
        """The first two and the last four, and the first and the last with rows."""
        books = self.shelf.having(kind)
        if not books:
            return
        self.readings(kind, self.shelf.inside(kind, books[0])[:2].tolist())
        self.readings(kind, self.shelf.inside(kind, books[-1])[-4:].tolist())
        for order, which in ((books, 0), (books[::-1], -1)):
            for book in order:
                if book.segment.rows(kind):
                    found = book.moments(kind)
                    filled = np.intersect1d(found.mono[found.rows > 0],
                                            self.shelf.inside(kind, book))  # fmt: skip
                    if len(filled):
                        self.readings(kind, [float(filled[which])])
                        break

    def grid(self, kind: type[Row]) -> None:
        """Pairs of neighbours, evenly over the span; fewer of large tables."""
        books = self.shelf.having(kind)
        rows = sum(book.segment.rows(kind) for book in books)
        each = max(rows / max(sum(book.numbers(kind) for book in books), 1), 1.0)
        each *= _HEAVY if kind is Interrupt else 1
        pairs = int(min(_PAIRS, _PAIR_ROWS / 2 / each))
        span = self.shelf.span
        for moment in np.linspace(span.start[0], span.end[0], pairs + 2)[1:-1].tolist():
            book = self.shelf.books[self.place(moment)]
            mono = self.shelf.inside(kind, book)
            at = min(int(np.searchsorted(mono, moment)), max(len(mono) - 2, 0))
            self.readings(kind, mono[at : at + 2].tolist())

    def take(self, *kinds: type[Row]) -> dict[type[Row], list[Batch[Any]]]:
        """Of each table what was chosen."""
        return take(self.shelf, {kind: self._picks(kind) for kind in kinds})

    def _picks(self, kind: type[Row]) -> dict[int, Pick]:
        whole, things = self._whole[kind], self._things[kind]
        linked = self._linked[kind] | self._between(kind)
        return {
            place: Pick(whole.get(place, ()), things.get(place, {}), linked)
            for place in {*whole, *things}
        }

    def _between(self, kind: type[Row]) -> set[float]:
        """Readings chosen for any reason inside a stretch that was above a limit."""
        parts = (*self._whole[kind].values(), *self._things[kind].values())
        chosen = np.unique(np.array([mono for part in parts for mono in part], float))
        found: set[float] = set()
        for start, end in self._spans[kind]:
            found.update(chosen[(chosen > start) & (chosen <= end)].tolist())
        return found
