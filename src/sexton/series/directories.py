"""Which cgroup directories were created and removed between readings.

A cgroup's inode is its id, so a directory that was removed and created again under the same name is
a different one. In a copied tree the inodes are those of the copy: the root's own inode then
differs between readings (or is 0), and only names are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

import numpy as np

from sexton.model.rows.cgroup import CgroupDir
from sexton.model.window import Batch, Columns, Window
from sexton.series.rates import prepend, with_last


class Turnover(NamedTuple):
    """Number of created directories, removals by path, and the number of existing directories by
    the time of each reading (monotonic seconds)."""

    births: int
    gone: Counter[str]
    counts: dict[float, int]


def turnover(window: Window) -> Turnover:
    """The turnover between all readings of the window."""
    return window.keep("turnover", lambda: turnover_in(window.columns(CgroupDir, ("inode",))))


def turnover_in(pieces: Iterable[Columns]) -> Turnover:
    """The same for columns in pieces."""
    births = 0
    gone: Counter[str] = Counter()
    counts: dict[float, int] = {}
    last: Columns | None = None
    for piece in pieces:
        number = (~np.isnan(piece.values["inode"])).sum(axis=0)
        counts |= dict(zip(piece.mono.tolist(), number.tolist(), strict=True))
        joined = piece if last is None else prepend(last, with_things(piece, last.things))
        last = with_last(piece)
        inode = joined.values["inode"]
        there = ~np.isnan(inode)
        root = inode[joined.things.index(("/",))] if ("/",) in joined.things else None
        same = np.zeros(len(joined.mono) - 1, np.bool_)
        if root is not None:
            same = (root[1:] == root[:-1]) & (root[1:] > 0)
        anew = there[:, 1:] & there[:, :-1] & (inode[:, 1:] != inode[:, :-1]) & same
        births += int(((there[:, 1:] & ~there[:, :-1]) | anew).sum())
        went = ((there[:, :-1] & ~there[:, 1:]) | anew).sum(axis=1)
        for row in np.flatnonzero(went).tolist():
            gone[str(joined.things[row][0])] += int(went[row])
    return Turnover(births, gone, counts)


def with_things(piece: Columns, others: list[tuple[Hashable, ...]]) -> Columns:
    """The same readings, with rows of NaN for other things."""
    known = set(piece.things)
    more = [thing for thing in others if thing not in known]
    if not more:
        return piece
    values = {
        name: np.concatenate([value, np.full((len(more), value.shape[1]), np.nan)])
        for name, value in piece.values.items()
    }
    return piece._replace(things=[*piece.things, *more], values=values)


def identity(before: Batch[CgroupDir], after: Batch[CgroupDir]) -> Callable[[CgroupDir], Hashable]:
    """The key of a directory in both readings: inode and path, or only the path in a copy."""
    roots = [
        next((row.inode for row in batch.rows if row.path == "/"), 0) for batch in (before, after)
    ]
    if roots[0] and roots[0] == roots[1]:
        return lambda row: (row.inode, row.path)
    return lambda row: row.path
