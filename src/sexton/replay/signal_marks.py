"""What happens and is written down when it does: cgroups that die, lines the kernel logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from sexton.model.aligned import F64, Signal
from sexton.model.cgroup import CgroupEvent, CgroupEventGap
from sexton.model.event import KernelEvent
from sexton.model.row import Row, table
from sexton.model.text import printable
from sexton.replay.span_reader import Near, SegmentReader, SpanReader, inside
from sexton.series.sums import Readings, Sums, readings
from sexton.store.arrays import numbers, values
from sexton.store.schema import MONO

_MOST = 200
_ALL = "the whole node"
#: When each happened, and of what, as far as one table tells.
_Happened = tuple[F64, list[str]]


def death_signals(reader: SpanReader, near: Near) -> Iterator[Signal]:
    """Cgroups that died, by the directory they were in, and all of them together."""
    for about, mono, value in _counted(reader, near, CgroupEvent, _deaths):
        yield Signal("cgroup", printable(about), "deaths", "/s", mono, value)


def log_signals(reader: SpanReader, near: Near) -> Iterator[Signal]:
    """Lines of the kernel's log that are known, by what they tell of."""
    for about, mono, value in _counted(reader, near, KernelEvent, _lines):
        if about != _ALL:
            yield Signal("kernel_log", printable(about), "lines", "/s", mono, value)


def _deaths(each: SegmentReader) -> _Happened:
    names = ("kind", "path")
    found = each.segment.table(CgroupEvent, (MONO, *names), coded=names)
    if found is None:
        return np.empty(0), []
    died = np.array([kind == "rmdir" for kind in values(found.column("kind"))], np.bool_)
    paths = values(found.column("path"), np.flatnonzero(died))
    return numbers(found.column(MONO))[died], [path.rpartition("/")[0] or "/" for path in paths]


def _lines(each: SegmentReader) -> _Happened:
    found = each.segment.table(KernelEvent, (MONO, "family", "mono_us"), coded=("family",))
    if found is None:
        return np.empty(0), []
    # By the kernel's own time: a recorder that starts reads lines that are hours old.
    read, said = (values(found.column(name)) for name in (MONO, "mono_us"))
    when = [a if b is None else b / 1e6 for a, b in zip(read, said, strict=True)]
    return np.array(when, np.float64), values(found.column("family"))


def _counted(
    reader: SpanReader, near: Near, kind: type[Row], happened: Callable[[SegmentReader], _Happened]
) -> Iterator[tuple[str, F64, F64]]:
    codes: dict[str, int] = {_ALL: 0}
    sums = Sums()
    last: float | None = None
    for each in reader.each(kind, near, lambda each: each):
        moments = _moments(each, kind)
        moments = moments[inside(moments, reader.span, near)]
        if not len(moments):
            continue
        when = _watched(each, readings(moments, last), kind)
        last = float(moments[-1])
        times, names = happened(each) if each.segment.rows(kind) else (np.empty(0), [])
        at = np.searchsorted(moments, times)
        first = moments[0] - when.spent[0] if when.known[0] else moments[0]
        these = (times > first) & (at < len(moments))
        mine = np.array([codes.setdefault(name, len(codes)) for name in names], np.int64)[these]
        at = at[these]
        rate = np.where(when.known[at], 1 / when.spent[at], 0.0)
        keys = np.concatenate([mine, np.zeros(len(mine), np.int64)])
        sums.add(when, keys, np.tile(at, 2), np.tile(rate, 2))
    called = list(codes)
    for code, mono, value in sums.largest(_MOST):
        yield called[code], mono, value


def _moments(each: SegmentReader, kind: type[Row]) -> F64:
    """When the table was read. Where nothing was found all the time, to about a second: that is
    told by the manifest, and no file has to be opened for it."""
    told = each.segment.manifest["tables"].get(table(kind), {})
    if each.segment.rows(kind) or "first" not in told:
        return np.asarray(each.readings(kind).mono, np.float64)
    return np.linspace(told["first"][0], told["last"][0], int(told["batches"]))


def _watched(each: SegmentReader, when: Readings, kind: type[Row]) -> Readings:
    """Steps in which the trace lost events are not known."""
    if kind is not CgroupEvent or not each.segment.rows(CgroupEventGap):
        return when
    found = each.segment.table(CgroupEventGap, (MONO, "lost"))
    if found is None:
        return when
    lost = numbers(found.column(MONO))[numbers(found.column("lost")) > 0]
    # The two are read one after the other, at almost the same moment.
    known = when.known.copy()
    for moment in lost.tolist():
        known[int(np.abs(when.mono - moment).argmin())] = False
    return when._replace(known=known)
