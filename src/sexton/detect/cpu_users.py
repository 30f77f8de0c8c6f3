"""Which units and cgroups used the CPU time of a span, and how far their counters moved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sexton.detect.stems import split, unit_of
from sexton.model.rows.cgroup import CgroupCpu
from sexton.model.window import Window
from sexton.series.cores import core_series
from sexton.series.rates import Amount, Born, steps_of

#: A second; cgroups that used less CPU time are not named.
_LEAST_US = 10_000


class User(NamedTuple):
    """A user of CPU time, and its `share` of all that was used, in per cent."""

    name: str
    share: float
    cgroup: str | None = None
    unit: str | None = None
    number: int = 1


def cgroups(window: Window, span: tuple[float, float]) -> list[User]:
    """Units, and cgroups outside units, by CPU time used; empty if that was not read."""
    used, covered = moved(window, span, "used_us")
    return users(used, _inside(window, covered, used))


def _total(used: Mapping[str, Amount]) -> float:
    return sum(each.amount for path, each in used.items() if split(path)[0] == "/")


def users(used: Mapping[str, Amount], inside: float = 1.0) -> list[User]:
    """`inside` is the part of all CPU time that these cgroups used."""
    total = _total(used)
    if not total:
        return []
    by_name: dict[str, list[str]] = defaultdict(list)
    for path in leaves(used):
        by_name[unit_of(path) or path].append(path)
    made = [
        User(
            name,
            min(100 * sum(used[path].amount for path in paths) / total, 100.0) * inside,
            paths[0],
            unit_of(paths[0]),
        )
        for name, paths in by_name.items()
        if sum(used[path].rate for path in paths) >= _LEAST_US
    ]
    return sorted(made, key=lambda part: -part.share)


def _inside(window: Window, span: tuple[float, float], used: Mapping[str, Amount]) -> float:
    """The part of the node's CPU time that cgroups below the root used."""
    cores = core_series(window)
    if cores is None or not used:
        return 1.0
    parts = cores.over(*span).values()
    busy = sum(shares.busy / 100 * shares.given_s / shares.seconds for shares in parts)
    known = max(each.seconds for each in used.values())
    return min(_total(used) / 1e6 / known / busy, 1.0) if busy > 0 else 1.0


def moved(
    window: Window, span: tuple[float, float], field: str
) -> tuple[Mapping[str, Amount], tuple[float, float]]:
    """By cgroup, how far a counter moved around a span, and the start and end of that time.

    A cgroup that is new since the reading before has counted from zero.
    """
    cores = core_series(window)
    born = Born("used_us", 1e6 * len(cores.cores)) if cores is not None else None
    found = window.keep(
        "cgroup cpu", lambda: steps_of(window.columns(CgroupCpu, ("used_us", "waited_us")), born)
    )
    touching = np.flatnonzero((found.start < span[1]) & (found.end > span[0]))
    if not len(touching):
        return {}, (0.0, 0.0)
    covered = float(found.start[touching[0]]), float(found.end[touching[-1]])
    return {str(path): each for (path,), each in found.over(field, *covered).items()}, covered


def leaves(paths: Mapping[str, Amount]) -> list[str]:
    """Those without another of them below."""
    parents = {split(path)[0] for path in paths}
    return [path for path in paths if path not in parents]
