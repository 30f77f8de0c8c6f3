"""Columns of one second, and coarser ones made of two each.

Level 0 is built from the recording. A column of level n + 1 is made of two of level n: its peak is
the higher of theirs, its mean is over all known seconds in it. Tiles exist only if something was
recorded in them, so a clock that jumped by years takes no memory.

Level 0 and those from `KEPT` on are kept: the ones between would be four fifths of the memory, and
are computed from the seconds in some milliseconds on request.

Sums and weights are kept rather than means: means of means would drift, and would give a column
that was recorded for a second the weight of a full one. The weight of a second is the time its
reading stands for, in hundredths of a second: of a core the time it was given, so that a column of
hours is the time spent divided by the time given, as in the table.
"""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.lane import COLUMNS, TOP

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
#: Units of weight in a second; one byte holds 2.5 s.
_WEIGHT_UNITS, _MOST_WEIGHT = 100, 255
#: The first of the coarser levels that are kept.
KEPT = 4


def as_slice(numbers: Ints) -> slice | Ints:
    """The same numbers as a slice if they are consecutive, which is many times as fast."""
    first, last = int(numbers[0]), int(numbers[-1])
    consecutive = last - first + 1 == len(numbers) and (np.diff(numbers) == 1).all()
    return slice(first, last + 1) if consecutive else numbers


class Form(NamedTuple):
    """A lane's number type, the value that means absent, and a type that holds sums of weighted
    values."""

    dtype: Any
    absent: float
    sums: Any = np.float32

    def known(self, values: Array) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = (
            ~np.isnan(values) if np.isnan(self.absent) else values != self.absent
        )
        return found


HEAT = Form(np.uint8, 255, np.uint32)
LINES = Form(np.float32, np.nan)
STACKS = Form(np.uint16, 65535)


class Meeting(Enum):
    """What becomes of a second that already has a value."""

    #: A clock was set back: the later reading is shown.
    LATER = "later"
    #: Several sources draw one line: the hotter value is shown.
    HOTTER = "hotter"
    #: Both readings are of this second: the hotter one is its peak, both count in its mean.
    SHARED = "shared"


class Cells(NamedTuple):
    """Values (channels, rows, columns) of some columns, the seconds each stands for (rows or one
    row, columns) and the rows to write, by default the first ones."""

    values: Array
    seconds: Array
    rows: Ints | None = None

    def part(self, columns: slice) -> Cells:
        return Cells(self.values[:, :, columns], self.seconds[:, columns], self.rows)


class _Tile:
    """At level 0 `sums` is None, and `mean` too unless a second has several readings. `weight` has
    one channel: a row is known in all channels or in none. `early` are columns that so far have
    only the value of a reading that ends before their middle."""

    __slots__ = ("early", "mean", "peak", "sums", "weight")

    def __init__(self, shape: tuple[int, ...], form: Form, level: int) -> None:
        self.peak: Array = np.full(shape, form.absent, form.dtype)
        self.mean: Array | None = None
        self.sums: Array | None = np.zeros(shape, form.sums) if level else None
        self.weight: Array = np.zeros(shape[1:], np.uint32 if level else np.uint8)
        self.early: set[int] = set()

    def widen(self, rows: int, fill: float, absent: float) -> None:
        """Add rows: absent, or `fill` wherever the first row is known."""
        more = rows - self.peak.shape[1]
        if more <= 0:
            return
        peak = np.full((self.peak.shape[0], more, COLUMNS), absent, self.peak.dtype)
        weight = np.zeros((more, COLUMNS), self.weight.dtype)
        if not np.isnan(fill):
            peak[np.broadcast_to(~np.isnan(self.peak[:, :1]), peak.shape)] = fill
            weight += self.weight[:1]
        self.peak = np.concatenate([self.peak, peak], axis=1)
        self.weight = np.concatenate([self.weight, weight], axis=0)
        if self.mean is not None:
            self.mean = np.concatenate([self.mean, peak], axis=1)
        if self.sums is not None:
            sums = np.zeros(peak.shape, self.sums.dtype)
            if not np.isnan(fill):
                sums += (weight * fill).astype(sums.dtype)
            self.sums = np.concatenate([self.sums, sums], axis=1)


class Pyramid:
    """All levels of one lane; shape (channels, rows, columns).

    `hot` are the channels whose sum decides which of two seconds is the hotter one: all channels of
    the peak are from that second. Without them each row's highest is taken by itself.
    `fill` is the earlier value of rows that are added later, wherever the first row is known.
    """

    def __init__(
        self, form: Form, channels: int = 1, hot: tuple[int, ...] = (), fill: float = np.nan
    ) -> None:
        self.form = form
        self.channels = channels
        self.rows = 0
        self._hot = hot
        self._fill = fill
        self._tiles: list[dict[int, _Tile]] = [{} for _ in range(TOP + 1)]
        self._dirty: set[int] = set()

    @property
    def bytes(self) -> int:
        """The memory it takes."""
        return sum(
            array.nbytes
            for tiles in self._tiles
            for tile in tiles.values()
            for array in (tile.peak, tile.mean, tile.sums, tile.weight)
            if array is not None
        )

    @property
    def tiles(self) -> list[int]:
        """The tiles of level 0, sorted by time."""
        return sorted(self._tiles[0])

    def widen(self, rows: int) -> None:
        """Have at least this many rows."""
        self.rows = max(self.rows, rows)

    def put(self, columns: Ints, cells: Cells, meeting: Meeting = Meeting.LATER) -> None:
        """Write seconds since the epoch, ascending."""
        if not len(columns):
            return
        rows = cells.rows
        self.widen(cells.values.shape[1] if rows is None else int(rows.max(initial=-1)) + 1)
        which = columns // COLUMNS
        edges = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(columns)]
        for start, end in pairwise(edges):
            index = int(which[start])
            tile = self._tile(0, index)
            self._write(tile, columns[start:end] - index * COLUMNS, cells.part(slice(start, end)),
                        meeting)  # fmt: skip
            self._dirty.add(index)

    def _write(self, tile: _Tile, columns: Ints, cells: Cells, meeting: Meeting) -> None:
        if meeting is Meeting.LATER and tile.early and not tile.early.isdisjoint(columns.tolist()):
            waiting = np.isin(columns, list(tile.early))
            for chosen, how in ((~waiting, meeting), (waiting, Meeting.SHARED)):
                some = Cells(cells.values[:, :, chosen], cells.seconds[:, chosen], cells.rows)
                if chosen.any():
                    self._write(tile, columns[chosen], some, how)
            tile.early.difference_update(columns.tolist())
            return
        at, new = as_slice(columns), cells.values
        place: Any = (slice(None), slice(0, new.shape[1]), at)
        if cells.rows is not None:
            there = np.arange(COLUMNS)[at]
            place = (slice(None), cells.rows[:, None], there[None])
        weight = np.rint(cells.seconds * np.float32(_WEIGHT_UNITS))
        weight = np.fmin(np.fmax(weight, 1), _MOST_WEIGHT).astype(np.uint8)  # 1 where unknown
        weight = np.where(self.form.known(new[0]), weight, np.uint8(0))
        old, before = tile.peak[place], tile.weight[place[1:]]
        if meeting is Meeting.SHARED and tile.mean is None and (before > 0).any():
            tile.mean = tile.peak.copy()
        if tile.mean is not None:
            tile.mean[place] = self._met(meeting, (tile.mean[place], before), (new, weight))
        tile.peak[place] = new if meeting is Meeting.LATER else self._hotter(old, new)
        if meeting is Meeting.HOTTER:
            weight = np.maximum(weight, before)
        elif meeting is Meeting.SHARED:
            if not before.any():
                tile.early.update(columns.tolist())
            weight = np.minimum(weight.astype(np.uint16) + before, _MOST_WEIGHT).astype(np.uint8)
        tile.weight[place[1:]] = weight

    def _met(self, meeting: Meeting, old: tuple[Array, Array], new: tuple[Array, Array]) -> Array:
        """The mean of seconds that had a value; each with its weight."""
        if meeting is Meeting.LATER:
            return new[0]
        if meeting is Meeting.HOTTER:
            return self._hotter(old[0], new[0])
        total = sum(np.where(weight > 0, value, 0.0) * weight for value, weight in (old, new))
        weight = old[1].astype(np.float64) + new[1]
        made = self._rounded(total / np.maximum(weight, 1))
        return np.where(weight > 0, made, self.form.dtype(self.form.absent))

    def settle(self) -> None:
        """Update the coarser levels with what was put since."""
        dirty, self._dirty = {index >> KEPT for index in self._dirty}, set()
        for index in dirty:
            made = self._made(KEPT, index)
            if made is not None:
                self._tiles[KEPT][index] = made
        for level in range(KEPT, TOP):
            for index in dirty:
                self._fold(self._tile(level, index), index, self._tile(level + 1, index >> 1))
            dirty = {index >> 1 for index in dirty}

    def forget(self, before: float) -> None:
        """Drop tiles that end before a wall time."""
        for level, tiles in enumerate(self._tiles):
            for index in [tile for tile in tiles if (tile + 1) * COLUMNS << level <= before]:
                del tiles[index]
        self._dirty &= self._tiles[0].keys()

    def planes(self, level: int, first: int, count: int) -> dict[str, Array]:
        """The means and the peaks of consecutive tiles."""
        shape = (self.channels, self.rows, count * COLUMNS)
        mean = np.full(shape, self.form.absent, self.form.dtype)
        peak = np.full(shape, self.form.absent, self.form.dtype)
        for at in range(count):
            tile = self._there(level, first + at)
            if tile is None:
                continue
            part = slice(at * COLUMNS, (at + 1) * COLUMNS)
            peak[:, :, part] = tile.peak
            mean[:, :, part] = self._mean(tile)
        return {"mean": mean, "peak": peak}

    def second(self, index: int) -> Array | None:
        """The values of one tile of level 0."""
        tile = self._tiles[0].get(index)
        return None if tile is None else tile.peak

    def _tile(self, level: int, index: int) -> _Tile:
        tile = self._tiles[level].get(index)
        if tile is None:
            tile = _Tile((self.channels, self.rows, COLUMNS), self.form, level)
            self._tiles[level][index] = tile
        tile.widen(self.rows, self._fill, self.form.absent)
        return tile

    def _there(self, level: int, index: int) -> _Tile | None:
        """A tile of any level; None if nothing was recorded in it."""
        if 0 < level < KEPT:
            return self._made(level, index)
        tile = self._tiles[level].get(index)
        if tile is not None:
            tile.widen(self.rows, self._fill, self.form.absent)
        return tile

    def _made(self, level: int, index: int) -> _Tile | None:
        """A tile made of its two halves one level below."""
        halves = [(at, self._there(level - 1, at)) for at in (2 * index, 2 * index + 1)]
        if all(half is None for _, half in halves):
            return None
        made = _Tile((self.channels, self.rows, COLUMNS), self.form, level)
        for at, half in halves:
            if half is not None:
                self._fold(half, at, made)
        return made

    def _mean(self, tile: _Tile) -> Array:
        if tile.sums is None:
            return tile.peak if tile.mean is None else tile.mean
        mean = self._rounded(tile.sums / np.maximum(tile.weight, 1))
        mean[:, tile.weight == 0] = self.form.dtype(self.form.absent)
        return mean

    def _rounded(self, mean: Array) -> Array:
        whole = mean if self.form.dtype is np.float32 else np.rint(mean)
        made: Array = whole.astype(self.form.dtype)
        return made

    def _fold(self, below: _Tile, index: int, above: _Tile) -> None:
        half = COLUMNS // 2
        part = slice(half * (index & 1), half * (index & 1) + half)
        assert above.sums is not None
        peak, weight, sums = below.peak, below.weight, below.sums
        above.peak[:, :, part] = self._hotter(peak[:, :, 0::2], peak[:, :, 1::2])
        if sums is None:
            values = self._mean(below)
            if self.form.dtype is np.float32:  # else an absent value times no weight is 0
                values = np.where(weight > 0, values, np.float32(0))
            sums = np.multiply(values, weight, dtype=_product(self.form))
        kept = above.sums.dtype
        np.add(sums[:, :, 0::2], sums[:, :, 1::2], out=above.sums[:, :, part], dtype=kept)
        np.add(weight[:, 0::2], weight[:, 1::2], out=above.weight[:, part], dtype=np.uint32)

    def _hotter(self, one: Array, other: Array) -> Array:
        if self.form.dtype is np.float32:
            return np.fmax(one, other)
        ones = np.array(1, self.form.dtype)
        if not self._hot:  # an absent value wraps to 0, the minimum
            found: Array = np.maximum(one + ones, other + ones) - ones
            return found
        heat = [
            sum(((array[at] + ones).astype(np.uint16) for at in self._hot), np.uint16(0))
            for array in (one, other)
        ]
        return np.where(heat[1] > heat[0], other, one)


def _product(form: Form) -> Any:
    """A type that holds a value times a weight of one second."""
    return np.uint16 if form.dtype is np.uint8 else np.float32
