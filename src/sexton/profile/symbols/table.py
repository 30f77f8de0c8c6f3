"""The symbols of one file by file offset: a table to look up many offsets at once.

Maps of a capture give file offsets: address minus the start of the map, plus its offset. Extents
are respected: an offset outside every symbol has no name, however near the next symbol is.

Among several symbols at one offset perf's rule decides (tools/perf/util/symbol.c,
`choose_best_symbol`), so that both agree: one with an extent, not weak, global, fewer leading
underscores, the longer name, the first; by demangled names. It is applied only to offsets that are
looked up.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I64, U8, Bools

_PAGE = 4096
_MOST_NAME = 1 << 14
#: How many symbols back an enclosing symbol is searched.
_MOST_BACK = 32
#: Limit on symbols compared at one offset.
_MOST_ALIASES = 1000
_WEAK = 2
CALL = 128

U64 = npt.NDArray[np.uint64]


class Rows(NamedTuple):
    """Symbols in file order: `start` is a file offset, `name_at` an offset in `Table.text`."""

    start: U64
    size: U64
    binding: U8
    name_at: I64

    def chosen(self, which: I64 | Bools) -> Rows:
        """Some of them."""
        return Rows(self.start[which], self.size[which], self.binding[which], self.name_at[which])


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """By ascending `start`; equal ones in file order. A name ends with NUL.

    `binding` is that of ELF, or `CALL` for an entry of the procedure linkage table, ``name@plt``.
    """

    start: U64
    end: U64
    binding: U8
    name_at: I64
    text: bytes | mmap.mmap

    def __len__(self) -> int:
        return len(self.start)

    def find(self, places: U64, plain: Callable[[str], str] = str) -> I64:
        """The symbol of each offset, -1: none. `plain` demangles a name."""
        found = np.full(len(places), -1, np.int64)
        if not len(self.start) or not len(places):
            return found
        nearest = np.searchsorted(self.start, places, side="right").astype(np.int64) - 1
        nearest = self._best(nearest, plain)
        inside = (nearest >= 0) & (places < self.end[nearest])
        found[inside] = nearest[inside]
        missed = np.flatnonzero(~inside & (nearest >= 0))
        if len(missed):
            self._find_outer(found, nearest, places, missed)
        return found

    def names(self, symbols: I64) -> list[str]:
        """The names of symbols, mangled."""
        text, found = self.text, []
        calls = (self.binding[symbols] == CALL).tolist()
        for at, call in zip(self.name_at[symbols].tolist(), calls, strict=True):
            end = text.find(b"\0", at, at + _MOST_NAME)
            name = text[at : end if end >= 0 else at + _MOST_NAME].decode(
                "utf-8", "surrogateescape"
            )
            found.append(name + "@plt" if call else name)
        return found

    def _find_outer(self, found: I64, nearest: I64, places: U64, missed: I64) -> None:
        """Find the enclosing symbol of offsets after an inner one (a label, a local function)."""
        reach = np.maximum.accumulate(self.end)
        missed = missed[places[missed] < reach[nearest[missed]]]
        for back in range(1, _MOST_BACK):
            outer = nearest[missed] - back
            missed, outer = missed[outer >= 0], outer[outer >= 0]
            if not len(missed):
                break
            holds = places[missed] < self.end[outer]
            found[missed[holds]] = outer[holds]
            missed = missed[~holds]

    def _best(self, nearest: I64, plain: Callable[[str], str]) -> I64:
        """Of symbols at one offset, of which `nearest` is the last, perf's choice."""
        before = np.maximum(nearest - 1, 0)
        several = (nearest > 0) & (self.start[before] == self.start[nearest])
        if not several.any():
            return nearest
        lasts, which = np.unique(nearest[several], return_inverse=True)
        firsts = np.searchsorted(self.start, self.start[lasts], side="left")
        firsts = np.maximum(firsts, lasts - _MOST_ALIASES)
        counts = lasts - firsts + 1
        rows = np.repeat(lasts - np.cumsum(counts) + 1, counts) + np.arange(counts.sum())
        ranks = self._ranks(rows, plain)
        begins = np.cumsum(counts) - counts
        # max() takes the first of equals, as perf does.
        chosen = [
            max(range(begin, begin + count), key=ranks.__getitem__)
            for begin, count in zip(begins.tolist(), counts.tolist(), strict=True)
        ]
        nearest = nearest.copy()
        nearest[several] = rows[chosen][which]
        return nearest

    def _ranks(self, rows: I64, plain: Callable[[str], str]) -> list[tuple[bool, int, int, int]]:
        """perf's preference: larger is better."""
        long = (self.end[rows] > self.start[rows]).tolist()
        binding = self.binding[rows]
        bound = np.where(binding == _WEAK, 0, np.where(binding == 0, 1, 2)).tolist()
        names = [plain(name) for name in self.names(rows)]
        return [
            (has, how, len(name.lstrip("_")) - len(name), len(name))
            for has, how, name in zip(long, bound, names, strict=True)
        ]


EMPTY = Table(
    np.empty(0, np.uint64),
    np.empty(0, np.uint64),
    np.empty(0, np.uint8),
    np.empty(0, np.int64),
    b"",
)


def joined(first: Rows, second: Rows) -> Rows:
    """Both, concatenated."""
    return Rows(
        np.concatenate((first.start, second.start)),
        np.concatenate((first.size, second.size)),
        np.concatenate((first.binding, second.binding)),
        np.concatenate((first.name_at, second.name_at)),
    )


def table_of(rows: Rows, text: bytes) -> Table:
    """A table of symbols in any order.

    A symbol without a size extends to the next one; inside a symbol with a size it is a label and
    names nothing. (perf uses either, depending on the shape of its search tree.)
    """
    if not len(rows.start):
        return EMPTY
    rows = rows.chosen(np.argsort(rows.start, kind="stable"))
    start, size, binding, name_at = rows.chosen(~_labels(rows))
    until = np.empty_like(start)
    until[:-1] = start[1:]
    page = np.uint64(_PAGE - 1)
    until[-1:] = ((start[-1:] + page) & ~page) + np.uint64(_PAGE)
    end = np.where(size == 0, until, start + size)
    # An end past the last address would wrap around and hide the symbol.
    end = np.where(end < start, np.uint64(2**64 - 1), end)
    return Table(start, end, binding, name_at, text)


def _labels(rows: Rows) -> Bools:
    """Which of the sorted rows have no size and lie inside another."""
    start, size = rows.start, rows.size
    reach = np.maximum.accumulate(np.where(size > 0, start + size, np.uint64(0)))
    first = np.searchsorted(start, start, side="left")
    before = np.where(first > 0, reach[np.maximum(first - 1, 0)], np.uint64(0))
    within: Bools = (size == 0) & (start < before)
    return within
