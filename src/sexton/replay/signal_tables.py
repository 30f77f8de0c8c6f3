"""The catalogue's metrics as signals. What never moved gives none, nor does what was not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from sexton.model.aligned import Signal
from sexton.model.row import Row
from sexton.model.text import printable
from sexton.model.window import Columns
from sexton.replay.segment_reader import Near
from sexton.replay.span_reader import SpanReader
from sexton.series.catalogue import METRICS, NIC_COUNTER, Kind, Metric, of_table
from sexton.series.meter import Meter, end_to_end
from sexton.series.rates import Floats, Series

#: A node may have more of anything than is worth comparing.
MOST_THINGS = 8_000
#: A device's counter that falls in so many of its steps is none: it is a level.
_FALLS = 0.05
#: Tables in the order in which their signals come.
TABLES = tuple(dict.fromkeys(metric.table for metric in METRICS if metric.compared))


def table_signals(table: type[Row], reader: SpanReader, near: Near) -> Iterator[Signal]:
    """Of one of these tables."""
    metrics = [metric for metric in of_table(table) if metric.compared]
    for metric, found in zip(metrics, _measured(metrics, reader, near), strict=True):
        if found is not None:
            yield from _named(metric, found)


def _measured(metrics: Sequence[Metric], reader: SpanReader, near: Near) -> list[Series | None]:
    meter = Meter(metrics)
    parts: list[list[Series]] = [[] for _ in metrics]
    for piece in reader.columns(meter.table, meter.columns, None, near):
        for mine, made in zip(parts, meter.add(_fewer(piece)), strict=True):
            mine.append(made)
    return [end_to_end(part) for part in parts]


def _fewer(piece: Columns) -> Columns:
    if len(piece.things) <= MOST_THINGS:
        return piece
    values = {name: value[:MOST_THINGS] for name, value in piece.values.items()}
    return piece._replace(things=piece.things[:MOST_THINGS], values=values)


def _named(metric: Metric, found: Series) -> Iterator[Signal]:
    """A signal for each thing that moved, and the largest of them where that is one."""

    def signal(about: str, name: str, value: Floats) -> Signal:
        names = (printable(about), printable(name))
        return Signal(metric.subject, *names, metric.unit, found.end, value.astype(np.float32))

    moved = np.fmax.reduce(found.values, axis=1) > np.fmin.reduce(found.values, axis=1)
    largest: dict[str, list[int]] = {}
    for row in np.flatnonzero(moved).tolist():
        thing = found.things[row]
        name = metric.help.format(*thing)
        largest.setdefault(name, []).append(row)
        yield signal(metric.about.format(*thing), name, found.values[row])
    for name, rows in largest.items() if metric.worst else ():
        if len(rows) > 1:
            yield signal("the core with most", name, np.fmax.reduce(found.values[rows], axis=0))


def device_signals(reader: SpanReader, near: Near) -> Iterator[Signal]:
    """A driver's own statistics: which of them are counters and which are levels is not known."""
    changes = NIC_COUNTER._replace(kind=Kind.CHANGE)
    (found,) = _measured([changes], reader, near)
    if found is None:
        return
    falls = (found.values < 0).sum(axis=1)
    levels = falls > _FALLS * np.isfinite(found.values).sum(axis=1)
    for metric, mine in ((NIC_COUNTER, ~levels), (changes._replace(help="change of {1}"), levels)):
        values = found.values[mine]
        if metric.kind is Kind.COUNTER:
            values = np.where(values < 0, np.nan, values)
        things = [found.things[at] for at in np.flatnonzero(mine).tolist()]
        yield from _named(metric, found._replace(things=things, values=values))
