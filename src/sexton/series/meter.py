"""Compute the values of metrics from readings: over a whole window, or piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import numpy as np

from sexton.model.row import Row
from sexton.model.window import Columns, Key, Window, columns_of
from sexton.series.catalogue import Kind, Metric
from sexton.series.cores import PARTS, CoreSeries, from_steps
from sexton.series.rates import F64, Floats, Series, Stepper, Steps

#: Things of one table that are compared or drawn at most.
_MOST_THINGS = 8_000


class Meter:
    """Some metrics of one table, piece by piece in time order.

    A step in which a counter was reset or readings are missing is unknown (NaN). `cores` is what
    the last shares were computed from.
    """

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self.metrics = tuple(metrics)
        self.table = self.metrics[0].table
        shares = any(metric.kind is Kind.SHARE for metric in self.metrics)
        named = [
            name for metric in self.metrics for name in (*metric.columns, metric.witness) if name
        ]
        self.columns = PARTS if shares else tuple(dict.fromkeys(named))
        self._counters, self._gauges = Stepper(), Stepper(may_fall=True)
        self._last = -np.inf
        self.cores: CoreSeries | None = None

    def add(self, columns: Columns) -> list[Series]:
        """A series per metric for these readings, with a step up to each."""
        kinds = {metric.kind for metric in self.metrics}
        counted = self._counters.add(columns) if kinds & {Kind.COUNTER, Kind.SHARE} else None
        moved = self._gauges.add(columns) if Kind.CHANGE in kinds else None
        before, self._last = self._last, float(columns.mono[-1])
        if counted is not None and Kind.SHARE in kinds:
            self.cores = from_steps(counted)
        made = []
        for metric in self.metrics:
            if metric.kind is Kind.GAUGE:
                made.append(_gauge(metric, columns, before))
            elif metric.kind is Kind.CHANGE and moved is not None:
                made.append(_rate(metric, moved))
            elif metric.kind is Kind.SHARE and self.cores is not None:
                made.append(_share(metric, self.cores))
            elif counted is not None:
                made.append(_rate(metric, counted))
        return made


def fewer(columns: Columns) -> Columns:
    """Without the things beyond those that are compared or drawn."""
    if len(columns.things) <= _MOST_THINGS:
        return columns
    values = {name: value[:_MOST_THINGS] for name, value in columns.values.items()}
    return columns._replace(things=columns.things[:_MOST_THINGS], values=values)


def _rows(metric: Metric, things: Sequence[tuple[object, ...]]) -> list[int]:
    wanted = metric.wanted
    return [at for at, thing in enumerate(things) if wanted is None or wanted(thing)]


def _share(metric: Metric, cores: CoreSeries) -> Series:
    value = cores.percent(cores.spent(metric.columns))
    return Series(cores.start, cores.end, cores.wall, cores.things, value)


def _rate(metric: Metric, steps: Steps) -> Series:
    rows = _rows(metric, steps.things)
    moved = _added(metric, steps.moved, rows)
    if metric.witness:
        moved = np.where((steps.moved[metric.witness][rows] == 0) & (moved > 0), 0.0, moved)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate: Floats = moved * metric.scale / steps.seconds
    if metric.most < inf:
        rate = np.minimum(rate, metric.most)
    return Series(steps.start, steps.end, steps.wall, [steps.things[at] for at in rows], rate)


def _gauge(metric: Metric, columns: Columns, before: float) -> Series:
    """A gauge is valid for the time since the previous reading; without one, for no time."""
    rows = _rows(metric, columns.things)
    value = _added(metric, columns.values, rows) * metric.scale
    if metric.absent is not None:
        value = np.nan_to_num(value, nan=metric.absent)
    first = before if columns.follows[0] and before > -np.inf else columns.mono[0]
    start = np.concatenate([[first], columns.mono[:-1]])
    start = np.where(columns.follows, start, columns.mono)
    return Series(start, columns.mono, columns.wall, [columns.things[at] for at in rows], value)


def _added(metric: Metric, values: dict[str, F64], rows: Sequence[int]) -> F64:
    first, *others = (values[name][rows] for name in metric.columns)
    for array in others:
        first = first + array
    return first


def largest(row: Row, metrics: tuple[Metric, ...]) -> float | None:
    """The largest of these gauges of one row, in their unit; `None` if none was read."""
    read = ((getattr(row, metric.columns[0]), metric.scale) for metric in metrics)
    return max((value * scale for value, scale in read if value is not None), default=None)


def latest(window: Window, metrics: tuple[Metric, ...]) -> dict[Key, tuple[float | None, ...]]:
    """By thing, these metrics of one table between its last two readings; `None` is unknown."""
    meter = Meter(metrics)
    columns = columns_of((window.batches(meter.table) or ())[-2:], meter.table, meter.columns)
    if columns is None or len(columns.mono) < 2:
        return {}
    made = meter.add(columns)
    last = (found.values[:, -1].tolist() for found in made)
    return {
        thing: tuple(None if np.isnan(value) else value for value in values)
        for thing, *values in zip(made[0].things, *last, strict=True)
    }


def series(window: Window, metric: Metric) -> Series | None:
    """One metric over a whole window; `None` if its table was never read."""
    found = several(window, (metric,))
    return found[0] if found else None


def several(window: Window, metrics: tuple[Metric, ...]) -> list[Series]:
    """Metrics of one table over a whole window, read once; empty if it was never read."""
    return window.keep(("series", metrics), lambda: _whole(window, metrics))


def _whole(window: Window, metrics: tuple[Metric, ...]) -> list[Series]:
    meter = Meter(metrics)
    read = window.columns(meter.table, meter.columns, metrics[0].wanted)
    pieces = [meter.add(column) for column in read]
    made = [end_to_end(piece[at] for piece in pieces) for at in range(len(metrics))]
    return [part for part in made if part is not None]


def end_to_end(parts: Iterable[Series]) -> Series | None:
    """Pieces as one series; a thing that is missing from a piece is unknown there."""
    found = [part for part in parts if len(part.end)]
    if len(found) < 2:
        return found[0] if found else None
    places = {
        thing: at for at, thing in enumerate({t: None for part in found for t in part.things})
    }
    values = np.full((len(places), sum(len(part.end) for part in found)), np.nan, np.float32)
    at = 0
    for part in found:
        rows = [places[thing] for thing in part.things]
        values[rows, at : at + len(part.end)] = part.values
        at += len(part.end)
    start, end, wall = (np.concatenate([part[field] for part in found]) for field in range(3))
    return Series(start, end, wall, list(places), values)
