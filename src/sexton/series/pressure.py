"""Pressure stall information over the window: who stood still for memory, step by step.

The machine's numbers are weighted by how busy each core is: one stalled task among 96 busy cores
is about 1 %, the same task alone on its machine 100 %. So a high share hurts on any machine, and a
low one may still be all of one task's time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sexton.model.memory import Pressure
from sexton.model.window import Window
from sexton.series.paging import NEAR_S
from sexton.series.steps import delta


class Level(NamedTuple):
    """One reading of `/proc/pressure/memory`, microseconds since boot; `None` is not told."""

    mono_s: float
    follows: bool
    some_us: int | None
    full_us: int | None


class Stall(NamedTuple):
    """Between two readings, in per cent of that time."""

    start: float
    end: float
    some: float
    full: float | None

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Levels(list[Level]):
    """Readings, oldest first, with the shares between neighbours."""

    @cached_property
    def stalls(self) -> list[Stall]:
        """Made once: several detectors go through a night of them."""
        made = (
            between(before, after)
            for before, after in pairwise(self)
            if after.follows and after.mono_s > before.mono_s
        )
        return [each for each in made if each is not None]


def levels(window: Window) -> Levels:
    """Every reading of the memory's pressure, oldest first; none where the kernel has no PSI."""
    return window.keep("memory pressure", lambda: Levels(_levels(window)))


def _levels(window: Window) -> Iterator[Level]:
    for piece in window.columns(Pressure, ("total_us",), lambda key: key[0] == "memory"):
        rows = {kind: piece.values["total_us"][at] for at, (_, kind) in enumerate(piece.things)}
        nothing = np.full(len(piece.mono), np.nan)
        kinds = (rows.get("some", nothing).tolist(), rows.get("full", nothing).tolist())
        times = zip(piece.mono.tolist(), piece.follows.tolist(), *kinds, strict=True)
        for mono, follows, some, full in times:
            if some == some or full == full:  # not NaN
                yield Level(mono, follows, _known(some), _known(full))


def _known(value: float) -> int | None:
    return int(value) if value == value else None


def stalls(found: Levels) -> list[Stall]:
    """The shares between neighbours."""
    return found.stalls


def between(before: Level, after: Level) -> Stall | None:
    """The shares between two readings, neighbours or not."""
    seconds = after.mono_s - before.mono_s
    some = delta(before.some_us, after.some_us)
    full = delta(before.full_us, after.full_us)
    if some is None:
        return None
    return Stall(
        before.mono_s,
        after.mono_s,
        some / 10_000 / seconds,
        None if full is None else full / 10_000 / seconds,
    )


def over(found: Sequence[Level], start: float, end: float) -> Stall | None:
    """The shares between the readings nearest to two moments; `None` where none is near."""
    if not found:
        return None
    first = min(found, key=lambda each: abs(each.mono_s - start))
    last = min(found, key=lambda each: abs(each.mono_s - end))
    away = max(abs(first.mono_s - start), abs(last.mono_s - end))
    return between(first, last) if last.mono_s > first.mono_s and away <= NEAR_S else None
