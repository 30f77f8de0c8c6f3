"""What the explorer's lanes are built from, until they take `Columns` and `Stepper` themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.aligned import F64
from sexton.model.row import Row
from sexton.model.window import Key
from sexton.replay.signal_tables import MOST_THINGS
from sexton.replay.span import Span
from sexton.replay.span_reader import SegmentReader, inside, matrix
from sexton.series.rates import F32, longest_step
from sexton.store.schema import MONO, texts_of

__all__ = ["F32", "MOST_THINGS", "Block", "Key", "Series", "longest_step", "read_block"]


class Block(NamedTuple):
    """One table of one segment: raw values per column, (things, readings) each."""

    mono: F64
    things: list[Key]
    values: dict[str, F64]


def read_block(
    reader: SegmentReader, span: Span, kind: type[Row], keys: Sequence[str], fields: Sequence[str]
) -> Block | None:
    """Some columns of a table by thing and reading; `None` where there is nothing in the span."""
    if not reader.segment.rows(kind):
        return None
    named = [name for name in keys if name in texts_of(kind)]
    found = reader.segment.table(kind, (MONO, *keys, *fields), coded=named)
    if found is None or not {MONO, *keys} <= {*found.column_names} or not found.num_rows:
        return None
    made = matrix(found, keys, [field for field in fields if field in found.column_names])
    mask = inside(made.mono, span, None)
    if mask.all():
        return Block(made.mono, made.things, made.values)
    values = {name: each[:, mask] for name, each in made.values.items()}
    return Block(made.mono[mask], made.things, values) if mask.any() else None


class Series:
    """Blocks put together: what was counted of things over all segments that are looked at.

    `how` is "rate" (a counter: what falls was reset), "change" or "level".
    """

    def __init__(self, how: str) -> None:
        self._how = how
        self._places: dict[Key, int] = {}
        self._known: tuple[list[Key], npt.NDArray[np.intp]] = ([], np.empty(0, np.intp))
        self._parts: list[tuple[F64, npt.NDArray[np.intp], F32]] = []
        self._last: F64 = np.empty(0)
        self._last_mono = -np.inf

    def add(self, mono: F64, things: list[Key], raw: F64) -> None:
        """The next readings, in the order of time; `raw` is (things, readings)."""
        index = self._index(things)
        kept = index >= 0
        if not kept.all():
            index, raw = index[kept], raw[kept]
        before = np.full(len(self._places), np.nan)
        before[: len(self._last)] = self._last
        values = raw if self._how == "level" else self._steps(mono, before[index], raw)
        self._parts.append((mono, index, values.astype(np.float32)))
        self._last = np.full(len(self._places), np.nan)
        self._last[index] = raw[:, -1]
        self._last_mono = float(mono[-1])

    def _index(self, things: list[Key]) -> npt.NDArray[np.intp]:
        known = self._known[0]
        if things is not known and things != known:  # mostly they are those of the segment before
            made = np.fromiter((self._place(key) for key in things), np.intp, len(things))
            self._known = (things, made)
        return self._known[1]

    def _place(self, key: Key) -> int:
        if key not in self._places and len(self._places) >= MOST_THINGS:
            return -1
        return self._places.setdefault(key, len(self._places))

    def _steps(self, mono: F64, before: F64, raw: F64) -> F64:
        moved = np.empty(raw.shape)
        np.subtract(raw[:, 1:], raw[:, :-1], out=moved[:, 1:])
        np.subtract(raw[:, 0], before, out=moved[:, 0])
        spent = np.diff(mono, prepend=self._last_mono)
        moved[:, (spent > longest_step(mono)) | (spent <= 0)] = np.nan
        if self._how == "rate":
            moved[moved < 0] = np.nan  # it was reset: nobody knows from where
        moved /= spent
        return moved

    def drain(self) -> F32 | None:
        """Rates of the readings that were added last, and let them go; `None` where some of their
        things were too many. For whoever goes through once and keeps something smaller."""
        _, index, value = self._parts.pop()
        self._parts = []
        return value if len(index) == len(self._known[0]) else None
