"""Cgroups that come and go, by parent and by what their names have in common.

Traced events give each death, its time and whether it was released. Without tracefs, two counts of
the directories show which inodes are gone: a lower bound, since cgroups that live and die between
two counts are never seen, and their release is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sexton.detect.deaths import Deaths, deaths
from sexton.detect.kubernetes.pods import PodPart, pods
from sexton.detect.rows_read import remembered
from sexton.detect.stems import container, join, kinds, path_stem, pattern, split, unit_of
from sexton.model.rows.cgroup import CgroupCensus, CgroupDir
from sexton.model.window import Window
from sexton.series.directories import turnover

_FEWEST_GAPS = 4


@dataclass(slots=True)
class Family:
    """Cgroups of similar names that died below one directory. `births` is how many such were made.
    `open_s` are the times of death of those that were not released yet,
    `kept_s` of those that were not within the grace; `unsure` is
    of how many nobody knows, since events were lost. `pod` is whose they were, if it has a name.

    `births`, `released`, `unsure`, `kept_s` and `open_s` stay empty if nothing was traced.
    """

    path: str
    names: set[str] = field(default_factory=set)
    deaths: int = 0
    births: int = 0
    released: int = 0
    unsure: int = 0
    kept_s: list[float] = field(default_factory=list)
    open_s: list[float] = field(default_factory=list)
    times_s: list[float] = field(default_factory=list)
    pod: PodPart | None = None

    @property
    def kept(self) -> int:
        return len(self.kept_s)

    @property
    def shown(self) -> str:
        return join(self.path, pattern(self.names))

    @property
    def called(self) -> str:
        """The pod or container, else where they were."""
        return self.shown if self.pod is None else self.pod.words

    @property
    def exact(self) -> str | None:
        """The path, if they all had the same one."""
        return self.shown if len(self.names) == 1 else None

    @property
    def unit(self) -> str | None:
        return unit_of(self.exact or self.path)

    @property
    def container(self) -> str | None:
        """What kind of container they are, by their names."""
        return container(join(self.path, min(self.names)))

    @property
    def period_s(self) -> float | None:
        found = gaps(self.times_s)
        return float(np.median(found)) if found else None

    @property
    def lasted_s(self) -> float:
        """From the first death to the last."""
        return max(self.times_s, default=0.0) - min(self.times_s, default=0.0)

    @property
    def remade(self) -> bool:
        """Were about as many made, or have existing ones been removed?"""
        return self.births * 2 >= self.deaths

    def regular(self, spread: float) -> bool:
        """Do the gaps between deaths differ by no more than `spread` of their mean?"""
        found = gaps(self.times_s)
        if len(found) < _FEWEST_GAPS or not any(found):
            return False
        return bool(np.std(found) <= spread * np.mean(found))


def gaps(times_s: Iterable[float]) -> list[float]:
    """Seconds between one death and the next."""
    return [later - earlier for earlier, later in pairwise(sorted(times_s))]


class Churn(NamedTuple):
    """Every family, the busiest first. `traced` is `None` if only directories were compared."""

    families: tuple[Family, ...]
    births: int
    seconds: float
    traced: Deaths | None

    @property
    def deaths(self) -> int:
        return sum(family.deaths for family in self.families)


@remembered
def churn(window: Window) -> Churn | None:
    """What came and went; `None` without events and without two counts of directories."""
    traced = deaths(window)
    if traced is not None:
        return _from_events(window, traced)
    return _from_directories(window)


def _from_events(window: Window, traced: Deaths) -> Churn:
    kind_of = kinds(window, (death.path for death in traced.all), traced.made)
    families: dict[tuple[str, str], Family] = {}
    of_path: dict[str, Family] = {}
    kept = {id(death) for death in traced.unreleased}
    for death in traced.all:
        family = of_path.get(death.path)
        if family is None:
            kind = kind_of(death.path)
            family = families.setdefault((kind.path, kind.stem), Family(kind.path))
            family.names.add(kind.name)
            of_path[death.path] = family
        family.deaths += 1
        family.released += death.released_s is not None
        family.unsure += death.unsure_s is not None
        if death.released_s is None and death.unsure_s is None:
            family.open_s.append(death.died_s)
        if id(death) in kept:
            family.kept_s.append(death.died_s)
        family.times_s.append(death.died_s)
    for path in traced.made:
        kind = kind_of(path)
        made = families.get((kind.path, kind.stem))
        if made is not None:
            made.births += 1
    found = _busiest(window, families.values())
    return Churn(found, len(traced.made), traced.seconds, traced)


def _from_directories(window: Window) -> Churn | None:
    edges = window.bounds_of(CgroupDir)
    if edges is None or edges[0] == edges[1] or _cut_short(window):
        return None
    moved = turnover(window)
    families: dict[tuple[str, str], Family] = {}
    for gone, times in moved.gone.items():
        path, name = split(gone)
        family = families.setdefault((path, path_stem(name)), Family(path))
        family.names.add(name)
        family.deaths += times
    return Churn(_busiest(window, families.values()), moved.births, edges[1] - edges[0], None)


def _cut_short(window: Window) -> bool:
    """Were more directories counted than listed? Then a missing one means nothing."""
    listed = turnover(window).counts
    for batch in window.batches(CgroupCensus) or ():
        live = batch.rows[0].live if batch.rows else None
        # Some come and go while they are listed; a cut list lacks a good part.
        if live is not None and listed.get(batch.mono_s, live) * 1.1 + 10 < live:
            return True
    return False


def _busiest(window: Window, families: Iterable[Family]) -> tuple[Family, ...]:
    """The busiest first, with the pods they belonged to."""
    named = pods(window)
    found = sorted(families, key=lambda family: (-family.kept, -family.deaths, family.path))
    for family in found if named else ():
        family.pod = named.common(join(family.path, name) for name in family.names)
    return tuple(found)
