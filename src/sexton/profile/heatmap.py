"""Heat as a matrix to draw: any span from one second to twelve hours, with a limit on columns.

There are three kinds. ``subsecond``: 50 rows of 20 ms, all cores together, as in FlameScope.
``cores``: a row per core. ``peaks``: a row per core with the *busiest* second of each column, so
that two bad seconds are visible in twelve hours, where a mean would hide them.

A column is one second, or as many whole seconds as make the span fit. Values have the same scale at
every zoom: busy samples per second (of one core, or of one 20 ms row), averaged over the sampled
seconds of the column. Not sampled is -1 here and `null` in JSON, never 0.

The JSON object, contract ``sexton.heatmap/1`` (fields may be added)::

    {"schema": "sexton.heatmap/1",
     "kind": "subsecond" | "cores" | "peaks",
     "start": 1763213385.0,       start of the first column, on the clock below
     "clock": "unix" | "capture", "capture": no relation to UNIX time is known
     "column_seconds": 1,
     "columns": 120,
     "rows": [0, 20, 40, …],      milliseconds into the second, or core numbers (-1: unknown)
     "values": [[3, null, …], …], one list per row
     "max": 96,                   the largest value, 0 if there is none
     "unit": "busy samples per second",
     "left_out": 0}               cores beyond the limit, not drawn
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sexton.model.profile import CELL_NS, CELLS, I32, I64, Bools, Clock, Floats, Heat
from sexton.profile.heat import SECOND_NS, changes, disjoint, rows_of

SCHEMA = "sexton.heatmap/1"
HeatmapKind = Literal["subsecond", "cores", "peaks"]
#: Linux supports at most 8,192 cores; a file with more is damaged or hostile.
MOST_CORES = 8192
#: Default number of columns: about a wide screen.
COLUMNS = 1200
#: Counts placed at a time, 4 MB.
_PLACED = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Heatmap:
    """`values` has a row per 20 ms or core and a column per `column_seconds`; -1: not sampled."""

    kind: HeatmapKind
    start_s: int
    column_seconds: int
    rows: tuple[int, ...]
    values: Floats
    left_out: int = 0

    @property
    def most(self) -> float:
        """The largest value; 0 if nothing was sampled."""
        return max(float(self.values.max(initial=0)), 0.0)

    def column_ns(self, column: int) -> tuple[int, int]:
        """The start and end of a column."""
        start = (self.start_s + column * self.column_seconds) * SECOND_NS
        return start, start + self.column_seconds * SECOND_NS


class _Columns:
    """Maps seconds to columns."""

    def __init__(self, start_ns: int, end_ns: int, most: int) -> None:
        self.start_ns, self.end_ns = start_ns, max(end_ns, start_ns + 1)
        self.first = start_ns // SECOND_NS
        seconds = -(-self.end_ns // SECOND_NS) - self.first
        self.width = -(-seconds // max(most, 1))
        self.number = -(-seconds // self.width)
        self.last = self.first + seconds

    def clip(self, heat: Heat) -> Heat:
        first, last = np.searchsorted(heat.second, (self.first, self.last)).tolist()
        return rows_of(heat, slice(first, last))

    def of(self, second: I64) -> I64:
        return (second - self.first) // self.width


def heatmap(
    heat: Heat | Iterable[Heat],
    start_ns: int,
    end_ns: int,
    kind: HeatmapKind = "subsecond",
    columns: int = COLUMNS,
) -> Heatmap:
    """The matrix of a span (`end_ns` exclusive).

    Several heats, sorted by start, are added one by one: twelve hours need not be in memory at
    once.
    """
    parts = (heat,) if isinstance(heat, Heat) else disjoint(heat)
    span = _Columns(start_ns, end_ns, columns)
    if kind == "subsecond":
        return _subsecond(parts, span)
    return _cores(parts, span, kind)


def heatmap_json(drawn: Heatmap, clock: Clock) -> dict[str, object]:
    """The object of contract ``sexton.heatmap/1``, as in this module's description."""
    wall = clock.wall_s(drawn.start_s * SECOND_NS)
    whole = drawn.column_seconds == 1
    rounded = drawn.values.astype(np.int64) if whole else np.round(drawn.values, 2)
    return {
        "schema": SCHEMA,
        "kind": drawn.kind,
        "start": float(drawn.start_s) if wall is None else wall,
        "clock": "capture" if wall is None else "unix",
        "column_seconds": drawn.column_seconds,
        "columns": drawn.values.shape[1],
        "rows": list(drawn.rows),
        "values": [[None if v < 0 else v for v in row] for row in rounded.tolist()],
        "max": int(drawn.most) if whole else round(drawn.most, 2),
        "unit": "busy samples per second",
        "left_out": drawn.left_out,
    }


def _subsecond(parts: Iterable[Heat], span: _Columns) -> Heatmap:
    counts = np.zeros((span.number, CELLS), np.int64)
    seconds = np.zeros(span.number, np.int64)
    for part in parts:
        inside = span.clip(part)
        if not len(inside):
            continue
        # Seconds, not rows: a second counts once, on however many cores it was sampled.
        new = changes(inside.second)
        column = span.of(inside.second[new])
        seconds += np.bincount(column, minlength=span.number)
        starts = np.flatnonzero(new)
        edge = changes(column)
        counts[column[edge]] += _column_sums(inside, starts[edge])
    values = np.full((span.number, CELLS), -1.0)
    there = seconds > 0
    values[there] = counts[there] / seconds[there, None]
    if span.width == 1:
        _outside(values, span)
    rows = tuple(range(0, 1000, 1000 // CELLS))
    return Heatmap("subsecond", span.first, span.width, rows, np.ascontiguousarray(values.T))


def _outside(values: Floats, span: _Columns) -> None:
    """Cells before the start or after the end of the span are not sampled."""
    before = (span.start_ns % SECOND_NS) // CELL_NS
    values[0, :before] = -1
    after = -(-(span.end_ns - (span.last - 1) * SECOND_NS) // CELL_NS)
    values[-1, after:] = -1


def _column_sums(heat: Heat, starts: I64) -> I64:
    """The sums of the cells of the rows from each start to the next."""
    bounds = [*starts.tolist(), len(heat)]
    sums = np.empty((len(starts), CELLS), np.int64)
    for column in range(len(starts)):
        rows = heat.cells[bounds[column] : bounds[column + 1]]
        rows.sum(axis=0, dtype=np.int64, out=sums[column])
    return sums


def _cores(parts: Iterable[Heat], span: _Columns, kind: HeatmapKind) -> Heatmap:
    cores = np.zeros(0, np.int64)
    busy = np.zeros((0, span.number))
    seconds = np.zeros((0, span.number))
    seen = cores
    for part in parts:
        inside = span.clip(part)
        found = _distinct(inside)
        if not len(found):
            continue
        if not np.isin(found, seen).all():
            seen = np.union1d(seen, found)
            every = seen[:MOST_CORES]
            busy, seconds = _spread(busy, cores, every), _spread(seconds, cores, every)
            cores = every
        row, known = _rows(cores, inside.cpu)
        second, counts = inside.second[known], inside.busy[known]
        if not len(second):
            continue
        column = span.of(second)
        here = slice(int(column[0]), int(column[-1]) + 1)
        width = here.stop - here.start
        place = row * width + (column - here.start)
        most = len(cores) * width
        seconds[:, here] += np.bincount(place, minlength=most).reshape(-1, width)
        if kind == "peaks":
            _raise_peaks(busy, row, second, counts, span)
        else:
            busy[:, here] += np.bincount(place, counts, minlength=most).reshape(-1, width)
    values = np.full(busy.shape, -1.0)
    there = seconds > 0
    values[there] = busy[there] if kind == "peaks" else busy[there] / seconds[there]
    left_out = len(seen) - len(cores)
    return Heatmap(kind, span.first, span.width, tuple(cores.tolist()), values, left_out)


def _rows(cores: I64, cpu: I32) -> tuple[I64, slice | Bools]:
    """The row of each core number, and which numbers have a row."""
    if cores[0] >= -1 and cores[-1] < MOST_CORES and cpu.max() < MOST_CORES:
        place = np.full(MOST_CORES + 1, -1, np.int64)
        place[cores + 1] = np.arange(len(cores))
        row = place[cpu + 1]
        if row.min() >= 0:
            return row, slice(None)
    row = np.minimum(np.searchsorted(cores, cpu), len(cores) - 1)
    known = cores[row] == cpu
    return row[known], known


def _raise_peaks(peaks: Floats, row: I64, second: I64, busy: I32, span: _Columns) -> None:
    """Raise `peaks` to the busiest second of each core and column.

    A core occurs once per second, so counts are placed into a matrix, a million at a time, and the
    maximum is taken over the seconds of a column. (`np.maximum.at` takes several times as long.)
    """
    new = changes(second)
    starts = np.append(np.flatnonzero(new), len(second))
    column = span.of(second[new])
    at_once = max(_PLACED // max(len(peaks), 1), 1)
    for first in range(0, len(column), at_once):
        here = column[first : first + at_once]
        bounds = starts[first : first + len(here) + 1]
        rows = slice(int(bounds[0]), int(bounds[-1]))
        placed = np.zeros((len(here), len(peaks)), np.int32)
        placed[np.repeat(np.arange(len(here)), np.diff(bounds)), row[rows]] = busy[rows]
        edge = changes(here)
        most = np.maximum.reduceat(placed, np.flatnonzero(edge), axis=0).T
        peaks[:, here[edge]] = np.maximum(peaks[:, here[edge]], most)


def _distinct(heat: Heat) -> I64:
    if len(heat) and heat.cpu.min() >= -1 and heat.cpu.max() < MOST_CORES:
        present: Bools = np.bincount(heat.cpu + 1, minlength=1) > 0
        return np.flatnonzero(present) - 1
    return np.unique(heat.cpu).astype(np.int64)


def _spread(values: Floats, cores: I64, every: I64) -> Floats:
    """The same rows in a matrix of more cores."""
    wider = np.zeros((len(every), values.shape[1]))
    kept = np.isin(cores, every)
    wider[np.searchsorted(every, cores[kept])] = values[kept]
    return wider
