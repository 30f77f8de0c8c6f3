"""Arrow tables out of numpy arrays, without a Row in between: millions of rows are made here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lab.synthetic.plan import Array, Ticks
from sexton.model.row import Row, table
from sexton.model.window import Batch
from sexton.store.schema import READINGS, encode, schema_of

Column = Any  # an array per thing (E,), per thing and reading (E, n), or names (a list of text)


class Moments(NamedTuple):
    """When one source was read, in one segment."""

    mono: Array
    wall: Array

    def at(self, indices: Array) -> Moments:
        return Moments(self.mono[indices], self.wall[indices])


class Pieces:
    """The tables of one segment and the list of its readings, while they are being made."""

    def __init__(self, ticks: Ticks, rng: np.random.Generator) -> None:
        self.ticks = ticks
        self.tables: dict[type[Row], pa.Table] = {}
        self._rng = rng
        self._listed: list[tuple[str, Moments, Array]] = []
        self._sources = 0

    def moments(self, indices: Array | None = None) -> Moments:
        """The moments of the next source: they are read one after the other, never on the dot."""
        self._sources += 1
        late = 0.002 * self._sources + self._rng.gamma(2.0, 0.0004, len(self.ticks.mono))
        whole = Moments(self.ticks.mono + 0.21 + late, self.ticks.wall + 0.21 + late)
        return whole if indices is None else whole.at(indices)

    def things(self, kind: type[Row], when: Moments, columns: Mapping[str, Column]) -> None:
        """The same things at every reading: columns are (E, n) arrays, (E,) arrays or names."""
        n = len(when.mono)
        things = len(next(iter(columns.values())))
        schema = schema_of(kind)
        index = np.repeat(np.arange(things), n)
        arrays = [np.tile(when.mono, things), np.tile(when.wall, things), index.astype(np.int32)]
        made = [pa.array(array) for array in arrays]
        for field in list(schema)[3:]:
            made.append(_array(columns[field.name], field.type, index, n))
        self.tables[kind] = pa.Table.from_arrays(made, schema=schema)
        self._list(kind, when, np.full(n, things, dtype=np.int32))

    def readings(
        self, kind: type[Row], when: Moments, sizes: Array, columns: Mapping[str, Column]
    ) -> None:
        """Things that differ from reading to reading: columns are flat, in the order of time."""
        schema = schema_of(kind)
        ends = np.cumsum(sizes)
        position = np.arange(ends[-1]) - np.repeat(ends - sizes, sizes)
        made = [
            pa.array(np.repeat(when.mono, sizes)),
            pa.array(np.repeat(when.wall, sizes)),
            pa.array(position.astype(np.int32)),
        ]
        for field in list(schema)[3:]:
            column = columns[field.name]
            typed = column if isinstance(column, pa.Array) else pa.array(column, type=field.type)
            made.append(typed)
        self.tables[kind] = pa.Table.from_arrays(made, schema=schema)
        self._list(kind, when, sizes.astype(np.int32))

    def rows(self, kind: type[Row], when: Moments, rows: Sequence[Sequence[Row]]) -> None:
        """The few: rows as rows, one sequence per reading."""
        batches = [
            Batch(float(mono), float(wall), tuple(items))
            for mono, wall, items in zip(when.mono, when.wall, rows, strict=True)
        ]
        if any(rows):
            encoded, lost = encode(kind, batches)
            assert not lost, kind
            self.tables[kind] = pa.Table.from_batches([encoded])
        self._list(kind, when, np.array([len(row) for row in rows], dtype=np.int32))

    def once(self, kind: type[Row], rows: Sequence[Row], tick: int = 0) -> None:
        """Read once in this segment, at its first tick."""
        self.rows(kind, self.moments(np.array([tick])), [rows])

    def listing(self) -> pa.Table:
        """Every reading of every table, in the order of time, as the journal keeps it."""
        names = [name for name, when, _ in self._listed for _ in when.mono]
        mono = np.concatenate([when.mono for _, when, _ in self._listed])
        wall = np.concatenate([when.wall for _, when, _ in self._listed])
        sizes = np.concatenate([sizes for _, _, sizes in self._listed])
        order = np.argsort(mono, kind="stable")
        columns = [
            pa.array(names).take(pa.array(order)),
            *(pa.array(array[order]) for array in (mono, wall, sizes)),
        ]
        return pa.Table.from_arrays(columns, schema=READINGS)

    @property
    def read(self) -> frozenset[str]:
        """The tables that were read in this segment, with or without rows."""
        return frozenset(name for name, _, _ in self._listed)

    def _list(self, kind: type[Row], when: Moments, sizes: Array) -> None:
        self._listed.append((table(kind), when, sizes))


def _array(column: Column, arrow: pa.DataType, index: Array, n: int) -> pa.Array:
    if isinstance(column, list):
        return pa.array(column, type=arrow).take(pa.array(index))
    if column.ndim == 1:
        column = np.repeat(column, n)
    return pa.array(np.ascontiguousarray(column).reshape(-1), type=arrow)


def named(names: Sequence[str], codes: Array) -> pa.Array:
    """Text by number."""
    return pa.array(list(names)).take(pa.array(codes.astype(np.int32)))


class Counters:
    """Cumulative counters of some things: what they have reached, per thing."""

    def __init__(self, things: int) -> None:
        self.things = things
        self._last: dict[str, Array] = {}

    def forget(self) -> None:
        """A boot: everything counts from zero."""
        self._last = {}

    def add(self, name: str, steps: Array) -> Array:
        """The counter after each step; steps are (things, n)."""
        last = self._last.get(name, np.zeros(self.things, dtype=np.int64))
        total = last[:, None] + np.cumsum(steps.astype(np.int64), axis=1)
        self._last[name] = total[:, -1].copy()
        return np.asarray(total)
