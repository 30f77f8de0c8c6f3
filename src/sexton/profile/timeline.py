"""The timeline of a selection: matching samples per column of time.

The number of all samples on the chosen cores, idle ones included, is counted too: it gives the
share, and a column without samples is -1, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sexton.errors import CommandError
from sexton.model.profile import I64, Floats
from sexton.profile.select import Selection, chosen_in, window

if TYPE_CHECKING:
    from sexton.profile.captures import Opened

#: More columns cannot be drawn.
MOST_COLUMNS = 1_000_000
#: Counters over all cores, at most 64 MB.
MOST_COUNTERS = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Timeline:
    """A row per core of `cpus` (-1: unknown), or one row for all if `cpus` is `None`.

    `matched` counts matching samples per column, -1 without samples; `sampled` counts all.
    """

    start_ns: int
    column_ns: int
    cpus: tuple[int, ...] | None
    matched: I64
    sampled: I64

    @property
    def shares(self) -> Floats:
        """Matching of all samples, per column; `NaN` where nothing was sampled."""
        shares = np.full(self.matched.shape, np.nan)
        there = self.sampled > 0
        shares[there] = self.matched[there] / self.sampled[there]
        return shares


def timeline(
    opened: Opened, selection: Selection, column_ns: int, by_core: bool = False
) -> Timeline:
    """Count per column of `column_ns`, from the start of the range (or of the capture)."""
    start, end = range_of(opened, selection)
    columns = max(-(-(end - start) // column_ns), 1)
    _refuse_many(columns, 1)
    chosen = selection._replace(start_ns=start, end_ns=end)
    taken = chosen.all_samples()
    rows: dict[int, tuple[I64, I64]] = {}
    for profile in opened.profiles(start, end):
        part = window(profile, chosen)
        every = chosen_in(profile, taken, part)
        matched = chosen_in(profile, chosen, part)[every]
        column = (profile.time_ns[part][every] - start) // column_ns
        weight = None if profile.weight is None else profile.weight[part][every]
        core = profile.cpu[part][every] if by_core else np.zeros(len(column), np.int32)
        cores, row = np.unique(core, return_inverse=True)
        _refuse_many(columns, len(rows.keys() | set(cores.tolist())))
        place = row * columns + column
        for which, kept in ((0, matched), (1, np.ones_like(matched))):
            weights = None if weight is None else weight[kept]
            counts = np.bincount(place[kept], weights, minlength=len(cores) * columns)
            for cpu, count in zip(cores.tolist(), counts.reshape(-1, columns), strict=True):
                empty = np.zeros(columns, np.int64), np.zeros(columns, np.int64)
                rows.setdefault(cpu, empty)[which][:] += count.astype(np.int64)
    ordered = sorted(rows)
    shape = len(ordered) if by_core else 1, columns
    found = np.zeros((2, *shape), np.int64)
    for at, cpu in enumerate(ordered):
        found[0, at], found[1, at] = rows[cpu]
    found[0][found[1] == 0] = -1
    return Timeline(start, column_ns, tuple(ordered) if by_core else None, found[0], found[1])


def range_of(opened: Opened, selection: Selection) -> tuple[int, int]:
    """The chosen range, completed from the capture; `end` is exclusive."""
    span = opened.span_ns
    if span is None:
        raise CommandError("samples have no timestamps: cannot draw a timeline")
    start = span[0] if selection.start_ns is None else selection.start_ns
    end = span[1] + 1 if selection.end_ns is None else selection.end_ns
    return start, max(end, start + 1)


def _refuse_many(columns: int, rows: int) -> None:
    if columns > MOST_COLUMNS or columns * rows > max(MOST_COUNTERS, columns):
        what = f"{columns:,} columns" + (f" for each of {rows} cores" if rows > 1 else "")
        raise CommandError(f"{what} are too many: use wider columns or a shorter range")
