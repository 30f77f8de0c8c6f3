"""Runs: consecutive rows of one thing, such as a core or a counter.

In a sealed table the rows of each thing are together. A compacted hour of NIC counters has two
million rows and some thousand runs, so its file lists them in its footer: a reader then knows which
row groups hold a thing, and which rows are whose, without decoding the key columns. For a file
without the list, from an older version, the key columns are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sexton.store.arrays import Array, codes, numbers, values, whole

Ints = npt.NDArray[np.int64]
#: A thing's identity: the values of its key columns.
Thing = tuple[Any, ...]

#: The key of the list in a file's metadata.
LISTED = b"sexton.runs"
#: With fewer rows per run than this on average, a list would cost more than it saves.
_LEAST_ROWS = 32


class Runs(NamedTuple):
    """Where each run starts in a table, and its thing; `rows` is the length of the table."""

    starts: Ints
    things: list[Thing]
    rows: int

    @property
    def lengths(self) -> Ints:
        return np.diff(self.starts, append=self.rows)

    def agrees(self, other: Runs) -> bool:
        return self.things == other.things and np.array_equal(self.starts, other.starts)

    def some(self, wanted: Callable[[Thing], bool]) -> list[int]:
        """The indices of runs of wanted things."""
        return [at for at, thing in enumerate(self.things) if wanted(thing)]


def changes(columns: Sequence[Array], rows: int) -> Ints:
    """The rows in which one of these columns differs from the row before: where runs start."""
    change = np.zeros(rows, np.bool_)
    change[:1] = True
    for column in columns:
        change[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(change)


def key_codes(column: pa.ChunkedArray) -> Array:
    """The values of a key column as numbers, equal where the values are."""
    array = whole(column)
    if pa.types.is_string(array.type) or pa.types.is_dictionary(array.type):
        return codes(array)
    return numbers(array)


def runs_of(found: pa.Table, keys: Sequence[str]) -> Runs:
    """The runs of a table by its key columns; `None` for a column that an older version lacks."""
    there = {*found.column_names}
    starts = changes([key_codes(found.column(k)) for k in keys if k in there], found.num_rows)
    if not keys:
        return Runs(starts, [()] * len(starts), found.num_rows)
    columns = (
        values(found.column(name), starts) if name in there else [None] * len(starts)
        for name in keys
    )
    return Runs(starts, list(zip(*columns, strict=True)), found.num_rows)


def joined(parts: Sequence[Runs]) -> Runs:
    """The runs of concatenated tables. A row group may end within a run."""
    offsets = np.cumsum([0, *(part.rows for part in parts)])
    starts = [part.starts + offset for part, offset in zip(parts, offsets, strict=False)]
    every = np.concatenate([*starts, np.empty(0, np.int64)])
    things = [thing for part in parts for thing in part.things]
    begins = [at for at, thing in enumerate(things) if not at or thing != things[at - 1]]
    return Runs(every[begins], [things[at] for at in begins], int(offsets[-1]))


def encoded(keys: Sequence[str], groups: Sequence[Runs]) -> bytes | None:
    """The list for a file's metadata, a part per row group; `None` if it is not worth it."""
    number = sum(len(group.things) for group in groups)
    if not keys or not number or sum(group.rows for group in groups) < _LEAST_ROWS * number:
        return None
    things: dict[Thing, int] = {}
    parts = []
    for group in groups:
        which = [things.setdefault(thing, len(things)) for thing in group.things]
        parts.append([which, group.lengths.tolist()])
    listed = {"keys": list(keys), "things": list(things), "groups": parts}
    return json.dumps(listed, separators=(",", ":")).encode("ascii")


def decoded(listed: bytes, keys: Sequence[str], rows: Sequence[int]) -> list[Runs] | None:
    """The runs of each row group, whose lengths are `rows`; `None` if the list is invalid or has
    other keys: then the key columns are read."""
    try:
        found = json.loads(listed)
        things = [_thing(values, len(keys)) for values in found["things"]]
        if found["keys"] != list(keys) or len(found["groups"]) != len(rows):
            return None
        made = []
        for (which, lengths), number in zip(found["groups"], rows, strict=True):
            ends = np.cumsum(np.array(lengths, np.int64))
            if len(which) != len(ends) or int(ends[-1] if len(ends) else 0) != number:
                return None
            if min(lengths, default=1) < 1 or min(which, default=0) < 0:
                return None
            starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
            made.append(Runs(starts, [things[at] for at in which], number))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, OverflowError):
        return None
    return made


def _thing(found: list[Any], width: int) -> Thing:
    if len(found) != width or not all(
        value is None or isinstance(value, (str, int, float)) for value in found
    ):
        raise ValueError("not a thing")
    return tuple(found)


def pieces(places: Sequence[int], runs: Runs) -> list[tuple[int, int]]:
    """Start and number of rows of some runs; adjacent runs are one piece."""
    edges = [*runs.starts.tolist(), runs.rows]
    breaks = [0, *(at for at, (a, b) in enumerate(pairwise(places), 1) if b != a + 1), len(places)]
    return [
        (edges[places[first]], edges[places[last - 1] + 1] - edges[places[first]])
        for first, last in pairwise(breaks)
        if last > first
    ]
