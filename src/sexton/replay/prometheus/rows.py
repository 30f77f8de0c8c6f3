"""Samples of one table as batches of rows, one batch per scrape.

Counters stay as they were scraped; `series` makes rates of them. All series of one scrape have the
same time, except those of cAdvisor, which dates each container by itself: samples within half a
scrape interval are one reading. A scrape that failed makes the step around it longer: its average
is right, and hides more. A node that stalls also stalls its exporter, so the longest step says what
may be hidden. Across a longer gap nothing is known.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupMemory
from sexton.model.rows.filesystem import Filesystem
from sexton.model.rows.hardware import MemoryModule
from sexton.model.rows.net import NicCounter, TcpCounters
from sexton.model.window import Batch
from sexton.replay.prometheus.client import Samples
from sexton.replay.prometheus.table import Table

#: After this long without a sample Prometheus takes a series for gone, too.
_GAP_S, _GAP_STEPS = 300.0, 2.5
#: Core and controller numbers beyond this are not believed.
_MOST_NUMBER = 1 << 16
_LOCAL = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "jfs", "vfat", "zfs", "tmpfs"}
)
#: Fields that are a number and stand in a label.
_NUMBERS = frozenset({"cpu", "controller"})
#: A cgroup without a limit has a number like this.
_NO_LIMIT = 1 << 60

_Key = tuple[str, ...]
_Values = dict[str, float]


class Scraped(NamedTuple):
    """Readings of one table, and the usual and the longest seconds between two of them; 0 if there
    is only one."""

    batches: list[Batch[Any]]
    usual_s: float
    longest_s: float


def scraped(table: Table, samples: Iterable[Samples], boot_s: float) -> Scraped:
    """Every scrape of a table; `boot_s` is when the node booted (UNIX)."""
    placed = _placed(table, samples)
    times = sorted({moment for series in placed for moment, _ in series.values})
    moments = [moment for moment in times if moment >= boot_s]
    step = _usual_step(placed)
    edges = _edges(moments, step)
    # Of two samples of one series in one reading the later counts.
    found: list[dict[_Key, _Values]] = [defaultdict(dict) for _ in edges]
    for series in placed:
        for moment, value in series.values:
            if moment >= boot_s:
                at = bisect_right(edges, moment) - 1
                found[at][series.key][series.field] = value * series.scale
    made = []
    longest, before = 0.0, None
    for edge, things in zip(edges, found, strict=True):
        rows = tuple(_rows(table, things))
        if rows:
            past = edge if before is None else before
            follows = edge - past <= max(_GAP_S, _GAP_STEPS * step)
            made.append(Batch(edge - boot_s, edge, rows, follows))
            longest, before = max(longest, edge - past), edge
    return Scraped(made, step, longest)


class _Placed(NamedTuple):
    """A series of which it is known where its values go."""

    key: _Key
    field: str
    scale: float
    values: Sequence[tuple[float, float]]


def _placed(table: Table, samples: Iterable[Samples]) -> list[_Placed]:
    found = []
    for labels, values in samples:
        for metric in table.metrics:
            place = metric.place(labels)
            if place is not None:
                found.append(_Placed(*place, metric.scale, values))
                break
    return found


def _usual_step(placed: Iterable[_Placed]) -> float:
    """The median time between two samples of one series."""
    steps = []
    for series in placed:
        moments = [moment for moment, _ in series.values]
        if len(moments) > 1:
            pairs = pairwise(moments)
            steps.append(median(later - earlier for earlier, later in pairs))
    return median(steps) if steps else 0.0


def _edges(moments: Sequence[float], step: float) -> list[float]:
    """The first moment of each reading."""
    edges: list[float] = []
    for moment in moments:
        if not edges or moment - edges[-1] >= max(step / 2, 1e-9):
            edges.append(moment)
    return edges


def _rows(table: Table, things: Mapping[_Key, _Values]) -> Iterable[Row]:
    special = _SPECIAL.get(table.row)
    if special is not None:
        yield from special(table, things)
        return
    for key, values in things.items():
        made = _row(table, dict(zip(table.row.entity, key, strict=True)), values)
        if made is not None:
            yield made


def _row(table: Table, key: Mapping[str, Any], values: _Values) -> Row | None:
    """`None` if a field that it must have was not scraped, or a value is none of a counter."""
    fields: dict[str, Any] = {**table.unless}
    for name, text in key.items():
        fields[name] = _number(text) if name in _NUMBERS else text
        if fields[name] is None:
            return None
    for name, value in values.items():
        if not 0 <= value < 2**63:
            return None
        fields[name] = round(value)
    if not _names(table.row) <= fields.keys():
        return None
    return table.row(**{name: fields[name] for name in _names(table.row)})


def _names(kind: type[Row]) -> set[str]:
    return set(kind.__dataclass_fields__)  # type: ignore[attr-defined]


def _number(text: str) -> int | None:
    """
    >>> _number("12"), _number("1e3"), _number("٣"), _number("99999999")
    (12, None, None, None)
    """
    plain = text.isascii() and text.isdecimal() and len(text) <= 6
    return int(text) if plain and int(text) < _MOST_NUMBER else None


def _filesystems(table: Table, things: Mapping[_Key, _Values]) -> Iterable[Row]:
    """Each filesystem once, by its shortest mount point, as they are read on the node."""
    shortest: dict[str, Row] = {}
    for (point, device, fstype), values in sorted(things.items(), key=lambda item: len(item[0][0])):
        if fstype not in _LOCAL or point.startswith(("/proc/", "/sys/")):
            continue
        closed = bool(values.get("mount_read_only", 0))
        disk = device.removeprefix("/dev/") if device.startswith("/dev/") else ""
        key = {"mount_point": point, "fstype": fstype, "device": disk}
        known = {name: value for name, value in values.items() if name != "mount_read_only"}
        state = {"read_only": closed, "mount_read_only": closed, "hung": False}
        made = _row(table, {**key, **state}, known)
        if made is not None:
            shortest.setdefault(disk or point, made)
    yield from shortest.values()


def _modules(table: Table, things: Mapping[_Key, _Values]) -> Iterable[Row]:
    """By controller: the exporter does not name the slots."""
    for (controller,), values in things.items():
        made = _row(table, {"controller": controller, "label": ""}, values)
        if made is not None:
            yield made


def _limited(table: Table, things: Mapping[_Key, _Values]) -> Iterable[Row]:
    for (path,), values in things.items():
        if 0 < values.get("limit_bytes", 0) < _NO_LIMIT:
            made = _row(table, {"path": path}, values)
            if made is not None:
                yield made


def _tcp(table: Table, things: Mapping[_Key, _Values]) -> Iterable[Row]:
    for values in things.values():
        known = dict(values)
        if "attempt_fails" not in known:
            # Connections given up are those beyond the failed attempts.
            known.pop("aborts_on_timeout", None)
        made = _row(table, {}, known)
        if made is not None:
            yield made


def _ethtool(table: Table, things: Mapping[_Key, _Values]) -> Iterable[Row]:
    """The exporter spells "rx" and "tx" out."""
    for (nic, counter), values in things.items():
        words = {"received": "rx", "transmitted": "tx"}
        name = "_".join(words.get(word, word) for word in counter.split("_"))
        made = _row(table, {"nic": nic, "counter": name}, values)
        if made is not None:
            yield made


_SPECIAL: Mapping[type[Row], Callable[[Table, Mapping[_Key, _Values]], Iterable[Row]]] = {
    Filesystem: _filesystems,
    MemoryModule: _modules,
    CgroupMemory: _limited,
    TcpCounters: _tcp,
    NicCounter: _ethtool,
}
