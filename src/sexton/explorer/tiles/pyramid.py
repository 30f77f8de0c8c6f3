"""Columns of one second, and coarser ones made of two each.

Level 0 is built from the recording. A column of level n + 1 is made of two of level n: its peak is
the higher of theirs, its mean is over all known seconds in it. Tiles exist only if something was
recorded in them, so a clock that jumped by years takes no memory.

Level 0 and those from `KEPT` on are kept: the ones between would be four fifths of the memory, and
are computed from the seconds in some milliseconds on request.

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
    """The same numbers as a slice if they are consecutive, which is many times as fast."""
    first, last = int(numbers[0]), int(numbers[-1])
    consecutive = last - first + 1 == len(numbers) and (np.diff(numbers) == 1).all()
    return slice(first, last + 1) if consecutive else numbers


class Form(NamedTuple):
    """A lane's number type, and the value that means absent."""

    dtype: Any
    absent: float

    def known(self, values: Array) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = (
            ~np.isnan(values) if np.isnan(self.absent) else values != self.absent
        )
        return found

    def sums(self, level: int) -> Any:
        """A type that holds the sums of a level exactly."""
        if self.dtype is not np.uint8:
            return np.float32
        return np.uint16 if level <= _SHORT_SUMS else np.uint32


HEAT = Form(np.uint8, 255)
LINES = Form(np.float32, np.nan)
STACKS = Form(np.uint16, 65535)


class _Tile:
    """`sums` and `weight` are None at level 0, where `peak` is enough."""

    __slots__ = ("peak", "sums", "weight")

    def __init__(self, shape: tuple[int, ...], form: Form, level: int) -> None:
        self.peak: Array = np.full(shape, form.absent, form.dtype)
        self.sums: Array | None = np.zeros(shape, form.sums(level)) if level else None
        self.weight: Array | None = np.zeros(shape, np.uint16) if level else None

    def widen(self, rows: int, fill: float, absent: float) -> None:
        """Add rows: absent, or `fill` wherever the first row is known."""
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
            for array in (tile.peak, tile.sums, tile.weight)
            if array is not None
        )

    @property
    def tiles(self) -> list[int]:
        """The tiles of level 0, sorted by time."""
        return sorted(self._tiles[0])

    def widen(self, rows: int) -> None:
        """Have at least this many rows."""
        self.rows = max(self.rows, rows)

    def put(
        self, columns: Ints, values: Array, hotter: bool = False, rows: Ints | None = None
    ) -> None:
        """Seconds since the epoch, ascending, and their values (channels, rows, columns).

        Old values are overwritten: if a clock was set back, the later reading is shown. With
        `hotter` the hotter of the two stays. `rows` are written, by default the first ones.
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
        if not self._hot:  # an absent value wraps to 0, the minimum
            found: Array = np.maximum(one + ones, other + ones) - ones
            return found
        heat = [
            sum(((array[at] + ones).astype(np.uint16) for at in self._hot), np.uint16(0))
            for array in (one, other)
        ]
        return np.where(heat[1] > heat[0], other, one)
