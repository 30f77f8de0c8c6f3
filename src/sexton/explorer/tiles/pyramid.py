"""Columns of one second, and the coarser ones made of them, two by two.

Level 0 is what was built from the recording. A column of level n + 1 is made of two of level n:
its peak is the higher of theirs, its mean is over all seconds below it that are known. Only tiles
in which something was recorded exist, so a clock that jumped by years takes no memory.

Only level 0 and those from `KEPT` on are kept: what lies between is four fifths of the memory, and
is made of the seconds in some milliseconds when it is looked at.

Sums and counts are kept rather than means: means of means would drift, and would give a column
that was recorded for a second the weight of a full one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.lane import COLUMNS, TOP

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
#: Sums of bytes up to 200 fit in 16 bits up to this level.
_SHORT_SUMS = 8
#: The first of the coarser levels that are kept.
KEPT = 4


def as_slice(numbers: Ints) -> slice | Ints:
    """The same numbers as a slice where they follow one another: many times as fast."""
    first, last = int(numbers[0]), int(numbers[-1])
    follow = last - first + 1 == len(numbers) and (np.diff(numbers) == 1).all()
    return slice(first, last + 1) if follow else numbers


class Form(NamedTuple):
    """What a lane's numbers are made of: their type, and what stands for none."""

    dtype: Any
    absent: float

    def known(self, values: Array) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = (
            ~np.isnan(values) if np.isnan(self.absent) else values != self.absent
        )
        return found

    def sums(self, level: int) -> Any:
        """What holds the sum of so many seconds exactly."""
        if self.dtype is not np.uint8:
            return np.float32
        return np.uint16 if level <= _SHORT_SUMS else np.uint32


HEAT = Form(np.uint8, 255)
LINES = Form(np.float32, np.nan)
STACKS = Form(np.uint16, 65535)


class _Tile:
    """`sums` and `weight` are `None` at level 0, where they would say the same again."""

    __slots__ = ("peak", "sums", "weight")

    def __init__(self, shape: tuple[int, ...], form: Form, level: int) -> None:
        self.peak: Array = np.full(shape, form.absent, form.dtype)
        self.sums: Array | None = np.zeros(shape, form.sums(level)) if level else None
        self.weight: Array | None = np.zeros(shape, np.uint16) if level else None

    def widen(self, rows: int, fill: float, absent: float) -> None:
        """More rows: absent, or `fill` where the first row is known."""
        more = rows - self.peak.shape[1]
        if more <= 0:
            return
        peak = np.full((self.peak.shape[0], more, COLUMNS), absent, self.peak.dtype)
        if not np.isnan(fill):
            peak[np.broadcast_to(~np.isnan(self.peak[:, :1]), peak.shape)] = fill
        self.peak = np.concatenate([self.peak, peak], axis=1)
        if self.sums is not None and self.weight is not None:
            zeros = np.zeros(peak.shape, self.sums.dtype)
            weight = np.zeros(peak.shape, np.uint16)
            if not np.isnan(fill):
                weight += self.weight[:, :1]
                zeros += (weight * fill).astype(zeros.dtype)
            self.sums = np.concatenate([self.sums, zeros], axis=1)
            self.weight = np.concatenate([self.weight, weight], axis=1)


class Pyramid:
    """All levels of one lane; shape (channels, rows, columns).

    `hot` are the channels whose sum says which of two seconds is the hotter one: all channels of
    the peak are then of that second. Without them each row's highest is taken by itself.
    `fill` is what rows that come later were before, where the first row is known.
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
        """What it holds in memory."""
        return sum(
            array.nbytes
            for tiles in self._tiles
            for tile in tiles.values()
            for array in (tile.peak, tile.sums, tile.weight)
            if array is not None
        )

    @property
    def tiles(self) -> list[int]:
        """Tiles of level 0 in which there is something, in the order of time."""
        return sorted(self._tiles[0])

    def widen(self, rows: int) -> None:
        """Have so many rows."""
        self.rows = max(self.rows, rows)

    def put(
        self, columns: Ints, values: Array, hotter: bool = False, rows: Ints | None = None
    ) -> None:
        """Seconds since the epoch, ascending, and their values (channels, rows, columns).

        What was there before is written over: where a clock was set back the later is shown. With
        `hotter` the hotter of the two stays. `rows` are those that are written; the first ones if
        not given.
        """
        if not len(columns):
            return
        self.widen(values.shape[1] if rows is None else int(rows.max(initial=-1)) + 1)
        which = columns // COLUMNS
        edges = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(columns)]
        for start, end in pairwise(edges):
            index = int(which[start])
            tile = self._tile(0, index)
            at = as_slice(columns[start:end] - index * COLUMNS)
            new = values[:, :, start:end]
            place: Any = (slice(None), slice(0, new.shape[1]), at)
            if rows is not None:
                there = np.arange(COLUMNS)[at]
                place = (slice(None), rows[:, None], there[None])
            tile.peak[place] = self._hotter(tile.peak[place], new) if hotter else new
            self._dirty.add(index)

    def settle(self) -> None:
        """Make the coarser levels of what was put since."""
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
        """The mean and the peak of some tiles beside each other."""
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
        """One tile of level 0, as it is."""
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
        """A tile in which there is something, of any level."""
        if 0 < level < KEPT:
            return self._made(level, index)
        tile = self._tiles[level].get(index)
        if tile is not None:
            tile.widen(self.rows, self._fill, self.form.absent)
        return tile

    def _made(self, level: int, index: int) -> _Tile | None:
        """One of the level above, out of its two halves."""
        halves = [(at, self._there(level - 1, at)) for at in (2 * index, 2 * index + 1)]
        if all(half is None for _, half in halves):
            return None
        made = _Tile((self.channels, self.rows, COLUMNS), self.form, level)
        for at, half in halves:
            if half is not None:
                self._fold(half, at, made)
        return made

    def _mean(self, tile: _Tile) -> Array:
        if tile.sums is None or tile.weight is None:
            return tile.peak
        weight = np.maximum(tile.weight, 1)
        mean = tile.sums / weight
        if self.form.dtype is not np.float32:
            mean = np.rint(mean)
        mean[tile.weight == 0] = self.form.absent
        return mean.astype(self.form.dtype)

    def _fold(self, below: _Tile, index: int, above: _Tile) -> None:
        half = COLUMNS // 2
        part = slice(half * (index & 1), half * (index & 1) + half)
        assert above.sums is not None
        assert above.weight is not None
        peak = below.peak
        above.peak[:, :, part] = self._hotter(peak[:, :, 0::2], peak[:, :, 1::2])
        if below.sums is None or below.weight is None:
            known = self.form.known(peak)
            sums: Array = np.where(known, peak, self.form.dtype(0))
            weight: Array = known.view(np.uint8)
        else:
            sums, weight = below.sums, below.weight
        kept = above.sums.dtype
        np.add(sums[:, :, 0::2], sums[:, :, 1::2], out=above.sums[:, :, part], dtype=kept)
        np.add(
            weight[:, :, 0::2], weight[:, :, 1::2], out=above.weight[:, :, part], dtype=np.uint16
        )

    def _hotter(self, one: Array, other: Array) -> Array:
        if self.form.dtype is np.float32:
            return np.fmax(one, other)
        ones = np.array(1, self.form.dtype)
        if not self._hot:  # what is absent wraps round to 0, the least there is
            found: Array = np.maximum(one + ones, other + ones) - ones
            return found
        heat = [
            sum(((array[at] + ones).astype(np.uint16) for at in self._hot), np.uint16(0))
            for array in (one, other)
        ]
        return np.where(heat[1] > heat[0], other, one)
