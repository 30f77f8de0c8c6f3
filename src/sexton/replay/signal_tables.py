"""Signals from the tables of a recording: the catalogue's metrics, and CPU time by task.

What never moved and what was not read gives no signal. CPU time is by task name, by process if
several have the same name, and by name and core.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sexton.model.aligned import F64, Signal
from sexton.model.row import Row
from sexton.model.rows.task import Process, Thread
from sexton.model.text import printable
from sexton.replay.segment_reader import Near, SegmentReader, inside
from sexton.replay.span_reader import SpanReader
from sexton.series.catalogue import METRICS, NIC_COUNTER, Kind, Metric, of_table
from sexton.series.meter import Meter, end_to_end, fewer
from sexton.series.rates import Floats, Series
from sexton.series.sums import Sums
from sexton.series.tasks import TaskRows, TaskStepper, TaskUse
from sexton.store.arrays import coded, numbers
from sexton.store.schema import MONO

Ints = npt.NDArray[np.int64]
#: If more than this share of a device counter's steps go down, it is a level.
_FALLS = 0.05
#: Tables in the order of their signals.
TABLES = tuple(dict.fromkeys(metric.table for metric in METRICS if metric.compared))
#: The busiest of each kind: more tests would only add false discoveries.
_MOST_NAMES = 400
_MOST_PROCESSES = 200
_MOST_ON_CORES = 300
#: A process gets a signal of its own if it ever used this much of a core, in per cent.
_BUSY = 1.0
_WORKER = re.compile(r"(kworker/u?[0-9]+).*", re.DOTALL)
_WIDTH = 1 << 24
#: Start times in milliseconds since boot fit below this.
_AGES = 1 << 40


def table_signals(table: type[Row], reader: SpanReader, near: Near) -> Iterator[Signal]:
    """Signals of one of `TABLES`."""
    metrics = [metric for metric in of_table(table) if metric.compared]
    for metric, found in zip(metrics, _measured(metrics, reader, near), strict=True):
        if found is not None:
            yield from _named(metric, found)


def _measured(metrics: Sequence[Metric], reader: SpanReader, near: Near) -> list[Series | None]:
    meter = Meter(metrics)
    parts: list[list[Series]] = [[] for _ in metrics]
    for piece in reader.columns(meter.table, meter.columns, None, near):
        for mine, made in zip(parts, meter.add(fewer(piece)), strict=True):
            mine.append(made)
    return [end_to_end(part) for part in parts]


def _named(metric: Metric, found: Series) -> Iterator[Signal]:
    """A signal for each thing that moved, and one for the largest if the metric asks for it."""

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
            yield signal("highest of all cores", name, np.fmax.reduce(found.values[rows], axis=0))


def device_signals(reader: SpanReader, near: Near) -> Iterator[Signal]:
    """A driver's own statistics, of which it is unknown which are counters and which are levels."""
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


class _Names:
    """Task names as numbers, across segments."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def codes(self, column: Any) -> Ints:
        codes, words = coded(column)
        found: Ints = np.array([self._code(word) for word in words], np.int64)[codes]
        return found

    def _code(self, comm: str) -> int:
        # A kernel worker is renamed with every job.
        return self._known.setdefault(_WORKER.sub(r"\1", comm), len(self._known))

    def listed(self) -> list[str]:
        return list(self._known)


def task_signals(reader: SpanReader, near: Near) -> Iterator[Signal]:
    """CPU time of the busiest tasks, by name and by process."""
    names = _Names()
    by_name, by_process = Sums(), Sums()
    pids: dict[int, set[int]] = {}
    for used in _used(reader, near, Process, names):
        pairs = used.rows.name * _WIDTH + used.rows.pid
        for pair in np.unique(pairs[used.percent > 0]).tolist():
            pids.setdefault(pair // _WIDTH, set()).add(pair % _WIDTH)
        by_name.add(used.when, used.rows.name, used.at, used.percent)
        busy = np.where(used.percent < _BUSY, 0.0, used.percent)
        by_process.add(used.when, pairs, used.at, busy)
    called = names.listed()
    for name, mono, value in by_name.largest(_MOST_NAMES):
        mine = pids[name]
        about = f"{called[name]}[{min(mine)}]" if len(mine) == 1 else called[name]
        yield _signal(about, "CPU time", mono, value)
    for pair, mono, value in by_process.largest(_MOST_PROCESSES):
        name, pid = divmod(pair, _WIDTH)
        if len(pids[name]) > 1:
            yield _signal(f"{called[name]}[{pid}]", "CPU time", mono, value)


def core_task_signals(reader: SpanReader, near: Near) -> Iterator[Signal]:
    """CPU time of the busiest tasks on each core: the core a thread was on when it was read."""
    names = _Names()
    sums = Sums()
    for used in _used(reader, near, Thread, names):
        percent = np.where(used.rows.cpu >= 0, used.percent, 0.0)
        sums.add(
            used.when, used.rows.name * _WIDTH + np.maximum(used.rows.cpu, 0), used.at, percent
        )
    called = names.listed()
    for pair, mono, value in sums.largest(_MOST_ON_CORES):
        name, cpu = divmod(pair, _WIDTH)
        yield _signal(called[name], f"time on core {cpu}", mono, value)


def _signal(about: str, name: str, mono: F64, value: F64) -> Signal:
    return Signal("task", printable(about), name, "% of a core", mono, value)


def _used(reader: SpanReader, near: Near, kind: type[Row], names: _Names) -> Iterator[TaskUse]:
    stepper = TaskStepper()
    for found in reader.parts(kind, near, lambda segment_reader: _read(segment_reader, kind, near)):
        if found is not None:
            rows = _rows(found, kind, names)
            mask = inside(rows.mono, reader.span, near)
            if mask.any():
                yield stepper.add(rows if mask.all() else rows.some(mask))


def _read(reader: SegmentReader, kind: type[Row], near: Near) -> pa.Table | None:
    wanted = (MONO, "comm", *_counted(kind))
    found = reader.near(kind, wanted, near) if reader.segment.rows(kind) else None
    return None if found is None or not {*wanted} <= {*found.column_names} else found


def _counted(kind: type[Row]) -> list[str]:
    return ["start_ms", "cpu", "user_ms", "system_ms", "pid", *(["tid"] * (kind is Thread))]


def _rows(found: pa.Table, kind: type[Row], names: _Names) -> TaskRows:
    counted = _counted(kind)
    column = {name: numbers(found.column(name)).astype(np.int64, copy=False) for name in counted}
    return TaskRows(
        mono=numbers(found.column(MONO)),
        task=column[counted[-1]] * _AGES + column["start_ms"] % _AGES,
        pid=column["pid"],
        start=column["start_ms"],
        name=names.codes(found.column("comm")),
        cpu=column["cpu"],
        used=column["user_ms"] + column["system_ms"],
    )
