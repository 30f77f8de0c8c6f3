"""Arrow tables from numpy arrays, without Row objects, because there are millions of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lab.synthetic.plan import Array, Ticks
from sexton.model.row import Row, table
from sexton.model.window import Batch
from sexton.store.schema import READINGS, encode, schema_of

Column = Any  # an array per entity (E,), per entity and reading (E, n), or a list of strings


class ReadTimes(NamedTuple):
    """When one source was read in one segment, on both clocks."""

    mono: Array
    wall: Array

    def at(self, indices: Array) -> ReadTimes:
        return ReadTimes(self.mono[indices], self.wall[indices])


class SegmentTables:
    """Builds the tables of one segment and the list of its readings."""

    def __init__(self, ticks: Ticks, rng: np.random.Generator) -> None:
        self.ticks = ticks
        self.tables: dict[type[Row], pa.Table] = {}
        self._rng = rng
        self._readings: list[tuple[str, ReadTimes, Array]] = []
        self._sources = 0

    def next_read_times(self, indices: Array | None = None) -> ReadTimes:
        """Read times of the next source: sources are read one after another, each with some
        delay."""
        self._sources += 1
        late = 0.002 * self._sources + self._rng.gamma(2.0, 0.0004, len(self.ticks.mono))
        whole = ReadTimes(self.ticks.mono + 0.21 + late, self.ticks.wall + 0.21 + late)
        return whole if indices is None else whole.at(indices)

    def same_entities(
        self, kind: type[Row], when: ReadTimes, columns: Mapping[str, Column]
    ) -> None:
        """A table with the same entities at every reading: columns are (E, n), (E,) or strings."""
        n = len(when.mono)
        things = len(next(iter(columns.values())))
        schema = schema_of(kind)
        index = np.repeat(np.arange(things), n)
        arrays = [np.tile(when.mono, things), np.tile(when.wall, things), index.astype(np.int32)]
        made = [pa.array(array) for array in arrays]
        for field in list(schema)[3:]:
            made.append(_array(columns[field.name], field.type, index, n))
        self.tables[kind] = pa.Table.from_arrays(made, schema=schema)
        self._add_reading(kind, when, np.full(n, things, dtype=np.int32))

    def varying_entities(
        self, kind: type[Row], when: ReadTimes, sizes: Array, columns: Mapping[str, Column]
    ) -> None:
        """A table whose entities differ between readings: columns are flat, in order of time."""
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
        self._add_reading(kind, when, sizes.astype(np.int32))

    def rows(self, kind: type[Row], when: ReadTimes, rows: Sequence[Sequence[Row]]) -> None:
        """A small table from Row objects, one sequence per reading."""
        batches = [
            Batch(float(mono), float(wall), tuple(items))
            for mono, wall, items in zip(when.mono, when.wall, rows, strict=True)
        ]
        if any(rows):
            encoded, lost = encode(kind, batches)
            assert not lost, kind
            self.tables[kind] = pa.Table.from_batches([encoded])
        self._add_reading(kind, when, np.array([len(row) for row in rows], dtype=np.int32))

    def once(self, kind: type[Row], rows: Sequence[Row], tick: int = 0) -> None:
        """A table read once in this segment, at `tick`."""
        self.rows(kind, self.next_read_times(np.array([tick])), [rows])

    def readings_table(self) -> pa.Table:
        """Every reading of every table, in order of time, as in the journal."""
        names = [name for name, when, _ in self._readings for _ in when.mono]
        mono = np.concatenate([when.mono for _, when, _ in self._readings])
        wall = np.concatenate([when.wall for _, when, _ in self._readings])
        sizes = np.concatenate([sizes for _, _, sizes in self._readings])
        order = np.argsort(mono, kind="stable")
        columns = [
            pa.array(names).take(pa.array(order)),
            *(pa.array(array[order]) for array in (mono, wall, sizes)),
        ]
        return pa.Table.from_arrays(columns, schema=READINGS)

    @property
    def read(self) -> frozenset[str]:
        """Names of the tables read in this segment, with or without rows."""
        return frozenset(name for name, _, _ in self._readings)

    def _add_reading(self, kind: type[Row], when: ReadTimes, sizes: Array) -> None:
        self._readings.append((table(kind), when, sizes))


def _array(column: Column, arrow: pa.DataType, index: Array, n: int) -> pa.Array:
    if isinstance(column, list):
        return pa.array(column, type=arrow).take(pa.array(index))
    if column.ndim == 1:
        column = np.repeat(column, n)
    return pa.array(np.ascontiguousarray(column).reshape(-1), type=arrow)


def named(names: Sequence[str], codes: Array) -> pa.Array:
    """Strings by index."""
    return pa.array(list(names)).take(pa.array(codes.astype(np.int32)))


class Counters:
    """Cumulative counters with their current values, per entity."""

    def __init__(self, things: int) -> None:
        self.things = things
        self._last: dict[str, Array] = {}

    def reset(self) -> None:
        """Start from zero after a boot."""
        self._last = {}

    def add(self, name: str, steps: Array) -> Array:
        """The counter after each step; steps are (entities, n)."""
        last = self._last.get(name, np.zeros(self.things, dtype=np.int64))
        total = last[:, None] + np.cumsum(steps.astype(np.int64), axis=1)
        self._last[name] = total[:, -1].copy()
        return np.asarray(total)
