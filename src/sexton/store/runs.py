"""Runs: consecutive rows of one thing, such as a core or a counter.

In a sealed table the rows of each thing are together. A compacted hour of NIC counters has two
million rows and some thousand runs, so its file lists them in its footer: a reader then knows which
row groups hold a thing, and which rows are whose, without decoding the key columns. For a file
without the list, from an older version, the key columns are read.

The list also says two things that save most of the decoding. Of a row group: whether all its runs
are of the same readings, which is usual, and in which row group these occur first; then the times
are decoded once. Of a run in a table of counters by name: its value, if that never changed; most
counters of errors never do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sexton.store.arrays import Array, codes, numbers, raw, values, whole
from sexton.store.encoding import MONO, POSITION, TIME

Ints = npt.NDArray[np.int64]
#: A thing's identity: the values of its key columns.
Thing = tuple[Any, ...]

#: The key of the list in a file's metadata.
LISTED = b"sexton.runs"
#: With fewer rows per run than this on average, a list would cost more than it saves.
_LEAST_ROWS = 32
#: Types of key values.
_PLAIN = {str, int, float, bool, type(None)}


class Runs(NamedTuple):
    """Where each run starts in a table, and its thing; `rows` is the length of the table.

    `even`: all runs are of the same readings, which are those of the first run of that row group of
    the file. `still`: per run its value in the column of that name, `None` if it changed.
    """

    starts: Ints
    things: list[Thing]
    rows: int
    even: int | None = None
    still: tuple[str, list[int | None]] | None = None

    @property
    def lengths(self) -> Ints:
        return np.append(self.starts[1:], self.rows) - self.starts

    def agrees(self, other: Runs) -> bool:
        """Whether a list says nothing that differs from `other`, which is from the columns."""
        same = self.things == other.things and np.array_equal(self.starts, other.starts)
        return same and self.even in (None, other.even) and self.still in (None, other.still)

    def some(self, wanted: Callable[[Thing], bool]) -> list[int]:
        """The indices of runs of wanted things."""
        return [at for at, thing in enumerate(self.things) if wanted(thing)]

    def at(self, some: Sequence[int]) -> Runs:
        """These runs alone."""
        lengths = self.lengths[list(some)]
        things = [self.things[place] for place in some]
        return Runs(np.cumsum(lengths) - lengths, things, int(lengths.sum()))


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


def by_thing(found: pa.Table, keys: Sequence[str]) -> pa.Table:
    """A table with the rows of each thing together, in the order they have. In an open segment the
    rows of each reading are together instead, and most runs are one row long."""
    there = [key_codes(found.column(name)) for name in keys if name in found.column_names]
    if not there:
        return found
    order = np.lexsort(there[::-1])  # keeps the order of equal ones
    return found if (order[1:] > order[:-1]).all() else found.take(pa.array(order))


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


def described(found: pa.Table, keys: Sequence[str], group: int, times: dict[bytes, int]) -> Runs:
    """`runs_of` one row group of a file, with what else a list says. `times` are the readings of
    the row groups before it, and gets its own."""
    runs = runs_of(found, keys)
    if not keys or not runs.rows:
        return runs
    number = int(runs.lengths[0])
    if MONO in found.column_names and (runs.lengths == number).all():
        mono = numbers(found.column(MONO)).reshape(-1, number)
        if (mono == mono[0]).all():
            runs = runs._replace(even=times.setdefault(mono[0].tobytes(), group))
    names = [name for name in found.column_names if name not in (*keys, *TIME, POSITION)]
    if len(names) == 1 and pa.types.is_integer(found.schema.field(names[0]).type):
        runs = runs._replace(still=(names[0], _still(found.column(names[0]), runs.starts)))
    return runs


def _still(column: pa.ChunkedArray, starts: Ints) -> list[int | None]:
    """Per run the value it has throughout, if it has one."""
    found, there = raw(column)
    least, most = np.minimum.reduceat(found, starts), np.maximum.reduceat(found, starts)
    same = least == most
    if there is not None:
        same &= np.logical_and.reduceat(there, starts)
    return [value if one else None for value, one in zip(least.tolist(), same, strict=True)]


def end_to_end(parts: Sequence[Runs]) -> Runs:
    """The runs of concatenated tables."""
    offsets = np.cumsum([0, *(part.rows for part in parts)])
    starts = [part.starts + offset for part, offset in zip(parts, offsets, strict=False)]
    things = [thing for part in parts for thing in part.things]
    return Runs(np.concatenate([*starts, np.empty(0, np.int64)]), things, int(offsets[-1]))


def joined(parts: Sequence[Runs]) -> Runs:
    """The same, but a run that goes on in the next table is one: a row group may end within it."""
    starts, things, rows, *_ = end_to_end(parts)
    begins = [at for at, thing in enumerate(things) if not at or thing != things[at - 1]]
    return Runs(starts[begins], [things[at] for at in begins], rows)


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
    listed["even"] = [group.even for group in groups]
    stills = [group.still for group in groups if group.still is not None]
    if len(stills) == len(groups):
        listed["still"] = [stills[0][0], [values for _, values in stills]]
    return json.dumps(listed, separators=(",", ":")).encode("ascii")


def decoded(listed: bytes, keys: Sequence[str], rows: Sequence[int]) -> list[Runs] | None:
    """The runs of each row group, whose lengths are `rows`; `None` if the list is invalid or has
    other keys: then the key columns are read."""
    try:
        found = json.loads(listed)
        things = _things(found["things"], len(keys))
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
        return _with_more(made, found)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError, OverflowError):
        return None


def _with_more(made: list[Runs], found: dict[str, Any]) -> list[Runs]:
    """The runs with what an older version does not list."""
    if "even" in found:
        for at, (runs, even) in enumerate(zip(made, found["even"], strict=True)):
            if even is not None:
                number = made[range(len(made))[even]].lengths[0]
                if (runs.lengths != number).any():
                    raise ValueError("not the same readings")
                made[at] = runs._replace(even=even)
    if "still" in found:
        column, groups = found["still"]
        for at, (runs, still) in enumerate(zip(made, groups, strict=True)):
            if len(still) != len(runs.things) or not {*map(type, still)} <= {int, type(None)}:
                raise ValueError("not a value per run")
            made[at] = made[at]._replace(still=(str(column), still))
    return made


def _things(found: list[list[Any]], width: int) -> list[Thing]:
    kinds = {type(value) for values in found for value in values}
    if any(len(values) != width for values in found) or not kinds <= _PLAIN:
        raise ValueError("not things")
    return list(map(tuple, found))


def pieces(places: Sequence[int], runs: Runs) -> list[tuple[int, int]]:
    """Start and number of rows of some runs; adjacent runs are one piece."""
    edges = [*runs.starts.tolist(), runs.rows]
    breaks = [0, *(at for at, (a, b) in enumerate(pairwise(places), 1) if b != a + 1), len(places)]
    return [
        (edges[places[first]], edges[places[last - 1] + 1] - edges[places[first]])
        for first, last in pairwise(breaks)
        if last > first
    ]
