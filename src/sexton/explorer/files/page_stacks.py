"""The stacks of a short capture, small enough to be in a page: what is chosen by hand there.

Per column of time, core and stack one count, over the stacks that are wide enough to be drawn at
all; what is narrower counts for the nearest caller that is. Packed as differences of one ascending
number, in bytes of seven bits.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I32, I64, Profile, Tree
from sexton.profile.idle import idle_nodes
from sexton.profile.stack_tree import join
from sexton.reports.svg.flame_picture import Box

#: About two bytes and a half each.
MOST_ENTRIES = 600_000
#: Longer captures are not looked through for this.
MOST_SAMPLES = 3_000_000
#: How many boxes are tried, one after the other.
_FEWER = (2500, 800, 250)


class Frame(NamedTuple):
    """Over which time: the begin and the width of a column, seconds from the capture's start."""

    start_ns: int
    column_ns: int
    columns: int


class Kept(NamedTuple):
    """The stacks that are drawn: a tree, its nodes as boxes in the order they are drawn."""

    tree: Tree
    boxes: Sequence[Box]


class Counted(NamedTuple):
    """Per busy sample: its column, its core, the box it is drawn in, and what it counts."""

    column: I64
    cpu: I32
    box: I64
    weight: I64


def packed_stacks(
    profiles: Iterable[Profile], kept: Kept, frame: Frame, frames: Sequence[int], since_s: float
) -> dict[str, Any] | None:
    """The object the page decodes; `None` where it would be too large in any case.

    `frames` are the boxes' names in the page's table. Where it is too much, first the thinnest
    stacks are told with their callers, and only then the cores are not told apart.
    """
    counted = [_counted(profile, kept, frame) for profile in profiles]
    cores = np.unique(np.concatenate([part.cpu for part in counted])) if counted else None
    if cores is None or not len(cores):
        return None
    for by_core in (True, False):
        for most in _FEWER:
            chosen, place = fewer_boxes(kept.boxes, most)
            keys, counts = _keyed(counted, cores if by_core else None, place)
            if len(keys) <= MOST_ENTRIES:
                return {
                    "first": since_s,
                    "column": frame.column_ns / 1e9,
                    "cores": cores.tolist() if by_core else [None],
                    "depth": [kept.boxes[each].depth for each in chosen],
                    "frame": [frames[each] for each in chosen],
                    "entries": len(keys),
                    "packed": base64.b64encode(_varints(keys, counts)).decode(),
                }
    return None


def fewer_boxes(boxes: Sequence[Box], most: int) -> tuple[list[int], I64]:
    """The widest boxes, and for every box which of these it is told with."""
    counts = np.array([box.counts[0] for box in boxes])
    least = 0
    if len(boxes) > most:
        least = int(np.partition(counts, len(boxes) - most)[len(boxes) - most])
    chosen: list[int] = []
    place = np.zeros(len(boxes), np.int64)
    line: list[int] = []
    for at, box in enumerate(boxes):
        del line[box.depth :]
        if at == 0 or counts[at] > least:
            place[at] = len(chosen)
            chosen.append(at)
        else:
            place[at] = place[line[-1]]
        line.append(at)
    return chosen, place


def _counted(profile: Profile, kept: Kept, frame: Frame) -> Counted:
    place = _drawn_node(profile.tree, kept)
    awake = ~idle_nodes(profile.tree)[profile.node]
    column = (profile.time_ns - frame.start_ns) // frame.column_ns
    wanted = awake & (column >= 0) & (column < frame.columns)
    weight = np.ones(len(profile), np.int64) if profile.weight is None else profile.weight
    return Counted(column[wanted], profile.cpu[wanted], place[profile.node[wanted]], weight[wanted])


def _drawn_node(tree: Tree, kept: Kept) -> I64:
    """Per node of a profile's tree: the box it is drawn in."""
    joined, (ours, theirs) = join([kept.tree, tree])
    box = np.full(len(joined), -1, np.int64)
    box[ours[[each.node for each in kept.boxes]]] = np.arange(len(kept.boxes))
    parents = joined.parents()
    for depth in range(1, int(joined.depth.max(initial=0)) + 1):
        here = np.flatnonzero((joined.depth == depth) & (box < 0))
        box[here] = box[parents[here]]
    return box[theirs]


def _keyed(counted: Sequence[Counted], cores: I32 | None, place: I64) -> tuple[I64, I64]:
    """One ascending number per column, core and box, and what was counted there."""
    width = 1 if cores is None else len(cores)
    nodes = int(place.max(initial=0)) + 1
    keys, weights = [], []
    for part in counted:
        core = 0 if cores is None else np.searchsorted(cores, part.cpu)
        keys.append((part.column * width + core) * nodes + place[part.box])
        weights.append(part.weight)
    distinct, row = np.unique(np.concatenate(keys), return_inverse=True)
    sums = np.zeros(len(distinct), np.int64)
    np.add.at(sums, row, np.concatenate(weights))
    return distinct, sums


def _varints(keys: I64, counts: I64) -> bytes:
    """Differences of the keys, each followed by its count."""
    values = np.empty(2 * len(keys), np.int64)
    values[0::2] = np.diff(keys, prepend=0)
    values[1::2] = counts
    return _seven_bits(values)


def _seven_bits(values: I64) -> bytes:
    """
    >>> _seven_bits(np.array([0, 127, 128, 300])).hex()
    '007f8001ac02'
    """
    size = np.ones(len(values), np.int64)
    for bits in range(7, 63, 7):
        size += values >= 1 << bits
    ends = np.cumsum(size)
    out: npt.NDArray[np.uint8] = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    for byte in range(int(size.max(initial=0))):
        here = size > byte
        more = size[here] > byte + 1
        out[ends[here] - size[here] + byte] = (values[here] >> (7 * byte)) & 127 | more * 128
    return out.tobytes()
