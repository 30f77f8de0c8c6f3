"""Which columns of which tables are signals, and what each is called.

A table is one entry here. What never moved gives no signal, and neither does what was not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from sexton.model.aligned import F64, Signal
from sexton.model.cgroup import CgroupThrottle, Controller
from sexton.model.cpu import CoreTimes, RunQueue, SoftnetCpu
from sexton.model.memory import Pressure, VmCounter
from sexton.model.net import Conntrack, NetDevice, NicCounter, TcpCounters
from sexton.model.row import Row
from sexton.model.softirq import SoftirqWait
from sexton.model.text import printable
from sexton.model.unit import Unit
from sexton.model.window import Columns, Key
from sexton.replay.span_reader import Near, SpanReader
from sexton.series.rates import F32, Stepper

#: A node may have more of anything than is worth comparing.
MOST_THINGS = 8_000
_CORE, _TIME, _EACH = "% of a core", "% of time", "/s"
#: A device's counter that falls in so many of its steps is none: it is a level.
_FALLS = 0.05
#: Where the number itself says something, beside its change.
_LEVELS = frozenset({"nr_free_pages", "nr_dirty", "nr_writeback", "nr_isolated_file"})
#: `/proc/vmstat` calls these as it calls gauges, and counts them up.
_COUNTS = frozenset(
    {
        "nr_dirtied", "nr_written", "nr_throttled_written", "nr_vmscan_write",
        "nr_vmscan_immediate_reclaim", "nr_foll_pin_acquired", "nr_foll_pin_released",
    }
)  # fmt: skip


class Field(NamedTuple):
    """A column: what it is called (with a thing's key filled in), its unit, and what one of it is.

    `how` is "rate" (a counter), "level", or "change" (of a level, in either direction). `largest`
    gives the largest of all things too: a culprit may be on another core each time. `none` is what
    the absence of a value means, where it means something.
    """

    column: str
    name: str
    unit: str = _EACH
    scale: float = 1.0
    how: str = "rate"
    largest: bool = False
    none: float = np.nan


class Source(NamedTuple):
    """A table: its signals' kind, its columns, and what each thing is about."""

    kind: str
    row: type[Row]
    fields: tuple[Field, ...]
    about: str
    wanted: Callable[[Key], bool] | None = None


def _plain(*columns: str) -> tuple[Field, ...]:
    return tuple(Field(column, column.replace("_", " ")) for column in columns)


def _is_gauge(key: Key) -> bool:
    name = str(key[0])
    return (name.startswith("nr_") or name == "workingset_nodes") and name not in _COUNTS


def _is_counter(key: Key) -> bool:
    return not _is_gauge(key)


def _is_level(key: Key) -> bool:
    return key[0] in _LEVELS


def _is_memory(key: Key) -> bool:
    return key[0] == "memory"


SOURCES: tuple[Source, ...] = (
    Source("core", CoreTimes, (
        Field("user_ms", "user time", _CORE, 0.1, largest=True),
        Field("system_ms", "system time", _CORE, 0.1, largest=True),
        Field("softirq_ms", "softirq time", _CORE, 0.1, largest=True),
        Field("irq_ms", "interrupt time", _CORE, 0.1),
        Field("iowait_ms", "waiting for I/O", _CORE, 0.1),
        Field("steal_ms", "stolen time", _CORE, 0.1),
    ), "core {0}"),
    Source("core", RunQueue, (
        Field("wait_ns", "tasks waiting to run", _CORE, 1e-7, largest=True),
    ), "core {0}"),
    Source("softirq", SoftnetCpu, _plain(
        "processed", "dropped", "time_squeeze",
    ), "core {0}"),
    Source("softirq", SoftirqWait, (
        Field("total_us", "{1} waiting", _TIME, 1e-4, largest=True),
        Field("pending_us", "{1} not yet served", "ms", 1e-3, "level", largest=True, none=0.0),
    ), "core {0}"),
    Source("pressure", Pressure, (
        Field("total_us", "{1} pressure", _TIME, 1e-4),
    ), "{0}"),
    Source("memory", VmCounter, (Field("value", "{0}"),), "vmstat", _is_counter),
    Source("memory", VmCounter, (
        Field("value", "change of {0}", how="change"),
    ), "vmstat", _is_gauge),
    Source("memory", VmCounter, (
        Field("value", "{0}", "pages", how="level"),
    ), "vmstat", _is_level),
    Source("nic", NetDevice, _plain(
        "rx_bytes", "rx_packets", "rx_errors", "rx_dropped",
        "tx_bytes", "tx_packets", "tx_errors", "tx_dropped",
    ), "{0}"),
    Source("tcp", TcpCounters, _plain(
        "in_segments", "out_segments", "retransmitted_segments", "established_resets",
        "attempt_fails", "timeouts", "aborts_on_timeout", "lost_retransmits", "listen_drops",
        "syn_retransmits",
    ), "TCP"),
    Source("tcp", Conntrack, (
        Field("count", "entries", "entries", how="level"),
        *_plain("drops", "early_drops", "insert_failed"),
    ), "conntrack"),
    Source("unit", Unit, (Field("restarts", "restarts", "/min", 60.0),), "{0}"),
    Source("cgroup", CgroupThrottle, (
        Field("throttled_us", "stopped by its quota", _TIME, 1e-4),
    ), "{0}"),
    Source("cgroup", Controller, (
        Field("cgroups", "cgroups, the dying among them", "", how="level"),
        Field("cgroups", "change of cgroups, the dying among them", how="change"),
    ), "{0}", _is_memory),
)  # fmt: skip


#: Tables in the order in which their signals come.
TABLES = tuple(dict.fromkeys(source.row for source in SOURCES))

#: Things with a column each, and the columns with the rows they are of, in the same order.
_Choice = tuple[list[Key], list[tuple[Field, list[int]]]]


class Matrix(NamedTuple):
    """Something over all readings, a row per thing; NaN where it is not known."""

    mono: F64
    things: list[Key]
    values: F32


class Gathered:
    """Rates or levels of things, put together over pieces; `how` is that of a `Field`."""

    def __init__(self, how: str) -> None:
        self._stepper = None if how == "level" else Stepper(may_fall=how == "change")
        self._rows: dict[Key, int] = {}
        self._parts: list[tuple[F64, npt.NDArray[np.intp], F32]] = []

    def add(self, columns: Columns, things: list[Key], raw: F64) -> None:
        """The next readings of these things, (things, readings)."""
        rows = np.fromiter((self._row(each) for each in things), np.intp, len(things))
        kept = rows >= 0
        if not kept.all():
            things = [each for each, keep in zip(things, kept.tolist(), strict=True) if keep]
            rows, raw = rows[kept], raw[kept]
        value = raw
        if self._stepper is not None:
            value = self._stepper.rates(columns._replace(things=things, values={"": raw}))[""]
        self._parts.append((columns.mono, rows, value.astype(np.float32)))

    def _row(self, key: Key) -> int:
        if key not in self._rows and len(self._rows) >= MOST_THINGS:
            return -1
        return self._rows.setdefault(key, len(self._rows))

    def matrix(self) -> Matrix | None:
        """All of it; things that never moved are left out, `None` where none did."""
        if not self._parts:
            return None
        mono = np.concatenate([part[0] for part in self._parts])
        made = np.full((len(self._rows), len(mono)), np.nan, np.float32)
        start = 0
        for times, rows, value in self._parts:
            made[rows, start : start + len(times)] = value
            start += len(times)
        self._parts = []
        low = np.fmin.reduce(made, axis=1)
        moving = np.flatnonzero(np.fmax.reduce(made, axis=1) > low)
        things = list(self._rows)
        if not len(moving):
            return None
        return Matrix(mono, [things[at] for at in moving.tolist()], made[moving])


def table_signals(row: type[Row], reader: SpanReader, near: Near) -> Iterator[Signal]:
    """Of one of these tables."""
    table = _Table([each for each in SOURCES if each.row is row])
    for piece in reader.columns(row, table.columns, None, near):
        table.add(piece)
    yield from table.signals()


class _Table:
    """What is taken of one table; things and columns of the same sort are counted together."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = sources
        self.columns = list(dict.fromkeys(each.column for s in sources for each in s.fields))
        self._gathered = {how: Gathered(how) for how in ("rate", "change", "level")}
        #: Of which things the choice below was made: mostly it holds for all pieces.
        self._known: list[Key] | None = None
        self._chosen: dict[str, _Choice] = {}

    def add(self, columns: Columns) -> None:
        if self._known != columns.things:
            self._known = columns.things
            self._chosen = self._choices(columns)
        for how, (things, parts) in self._chosen.items():
            raw: list[F64] = []
            for field, rows in parts:
                some = columns.values[field.column]
                some = some if len(rows) == len(some) else some[rows]
                raw.append(some if np.isnan(field.none) else np.nan_to_num(some, nan=field.none))
            self._gathered[how].add(columns, things, np.concatenate(raw))

    def _choices(self, columns: Columns) -> dict[str, _Choice]:
        found: dict[str, _Choice] = {}
        for at, source in enumerate(self.sources):
            wanted = source.wanted
            rows = [row for row, key in enumerate(columns.things) if wanted is None or wanted(key)]
            for which, field in enumerate(source.fields):
                if rows:
                    things, parts = found.setdefault(field.how, ([], []))
                    things += [(at, which, columns.things[row]) for row in rows]
                    parts.append((field, rows))
        return found

    def signals(self) -> Iterator[Signal]:
        for gathered in self._gathered.values():
            matrix = gathered.matrix()
            if matrix is None:
                continue
            mine: dict[tuple[int, int], list[int]] = {}
            for row, (at, which, _) in enumerate(cast("list[Any]", matrix.things)):
                mine.setdefault((at, which), []).append(row)
            for (at, which), rows in mine.items():
                keys = [cast("Key", matrix.things[row][2]) for row in rows]
                some = Matrix(matrix.mono, keys, matrix.values[rows])
                yield from _named(self.sources[at], self.sources[at].fields[which], some)


def _named(source: Source, field: Field, matrix: Matrix) -> Iterator[Signal]:
    values = matrix.values * np.float32(field.scale)

    def signal(about: str, name: str, value: F32) -> Signal:
        names = (printable(about), printable(name))
        return Signal(source.kind, *names, field.unit, matrix.mono, value)

    largest: dict[str, list[int]] = {}
    for at, (key, value) in enumerate(zip(matrix.things, values, strict=True)):
        name = field.name.format(*key)
        largest.setdefault(name, []).append(at)
        yield signal(source.about.format(*key), name, value)
    for name, rows in largest.items() if field.largest else ():
        if len(rows) > 1:
            yield signal("the core with most", name, np.fmax.reduce(values[rows], axis=0))


_DEVICE = Source("nic", NicCounter, (), "{0}")


def device_signals(reader: SpanReader, near: Near) -> Iterator[Signal]:
    """A driver's own statistics: which of them are counters and which are levels is not known."""
    gathered = Gathered("change")
    for piece in reader.columns(NicCounter, ("value",), None, near):
        gathered.add(piece, piece.things, piece.values["value"])
    matrix = gathered.matrix()
    if matrix is None:
        return
    falls = (matrix.values < 0).sum(axis=1)
    levels = falls > _FALLS * np.isfinite(matrix.values).sum(axis=1)
    counts = matrix.values[~levels]
    counts[counts < 0] = np.nan
    for field, mine, values in (
        (Field("value", "{1}"), ~levels, counts),
        (Field("value", "change of {1}"), levels, matrix.values[levels]),
    ):
        things = [matrix.things[at] for at in np.flatnonzero(mine).tolist()]
        yield from _named(_DEVICE, field, Matrix(matrix.mono, things, values))
