"""Flame graphs: of one profile, of several as one, and without what nobody was in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from sexton.model.flame import Flame
from sexton.model.profile import I64, Bools, Frames, Profile, Tree
from sexton.profile.grow import join
from sexton.profile.heat import SECOND_NS, sampled
from sexton.profile.select import Selection, chosen_in, window


def flame_of(profile: Profile, selection: Selection) -> Flame:
    """How many of the chosen samples ended in each node of the profile's tree."""
    rows = window(profile, selection)
    chosen = chosen_in(profile, selection, rows)
    return Flame(
        profile.tree,
        own_counts(profile, rows, chosen),
        _event(profile, selection),
        core_seconds(profile, selection),
        selection.start_ns,
        selection.end_ns,
    )


def own_counts(profile: Profile, rows: slice, chosen: Bools) -> I64:
    """Samples per node, of those of `rows` that are `chosen`."""
    node = profile.node[rows][chosen]
    if profile.weight is None:
        return np.bincount(node, minlength=len(profile.tree))
    own = np.zeros(len(profile.tree), np.int64)
    np.add.at(own, node, profile.weight[rows][chosen])
    return own


def core_seconds(profile: Profile, selection: Selection) -> float | None:
    """How much of the cores' time the range and the cores cover, whatever ran there.

    Per core the seconds in which it was sampled; of the first and the last one only what lies
    within the range and between the profile's first and last sample. `None` without times.
    """
    span = profile.span_ns
    if span is None:
        return None
    rows = window(profile, selection)
    every = Selection(cpus=selection.cpus, event=selection.event, idle=True)
    chosen = chosen_in(profile, every, rows)
    found = sampled(profile.time_ns[rows][chosen], profile.cpu[rows][chosen])
    start = span[0] if selection.start_ns is None else max(span[0], selection.start_ns)
    end = span[1] + 1 if selection.end_ns is None else min(span[1] + 1, selection.end_ns)
    begins = np.maximum(found.second * SECOND_NS, start)
    ends = np.minimum((found.second + 1) * SECOND_NS, end)
    return float((ends - begins).sum()) / SECOND_NS


def merge_flames(flames: Sequence[Flame]) -> Flame:
    """Several flame graphs as one: the same stack is one stack, wherever it was seen."""
    if not flames:
        return Flame(empty_tree(), np.zeros(1, np.int64), "")
    if len(flames) == 1:
        return flames[0]
    tree, places = join([flame.tree for flame in flames])
    own = np.zeros(len(tree), np.int64)
    for flame, place in zip(flames, places, strict=True):
        np.add.at(own, place, flame.own)
    times = [flame.core_seconds for flame in flames if flame.core_seconds is not None]
    return Flame(
        tree,
        own,
        ", ".join(dict.fromkeys(flame.event for flame in flames if flame.event)),
        sum(times) if len(times) == len(flames) else None,
        _outermost((flame.start_ns for flame in flames), min),
        _outermost((flame.end_ns for flame in flames), max),
    )


def pruned(flame: Flame) -> Flame:
    """The same without nodes and frames that no sample was in: what is kept or drawn."""
    tree = flame.tree
    kept = tree.totals(flame.own) > 0
    kept[0] = True
    place = np.zeros(len(tree) + 1, np.int32)
    np.cumsum(kept, out=place[1:])
    frame = tree.frame[kept]
    used = np.zeros(len(tree.frames), np.bool_)
    used[frame] = True
    used[0] = True
    renamed = (np.cumsum(used) - 1).astype(np.int32)
    numbers = np.flatnonzero(used).tolist()
    names, modules = tree.frames.names, tree.frames.modules
    frames = Frames(
        tuple([names[number] for number in numbers]),
        tuple([modules[number] for number in numbers]),
        tree.frames.kinds[used],
    )
    smaller = Tree(renamed[frame], tree.depth[kept], place[tree.end[kept]], frames)
    return Flame(
        smaller,
        flame.own[kept],
        flame.event,
        flame.core_seconds,
        flame.start_ns,
        flame.end_ns,
    )


class Gathering:
    """Flame graphs that come one after the other, as one in the end, in bounded memory.

    Joining each at once would cost the size of the whole every time; keeping all, the sum of them.
    So they wait until together they are as large as what is joined already.
    """

    def __init__(self) -> None:
        self._joined: list[Flame] = []
        self._waiting: list[Flame] = []

    def add(self, flame: Flame) -> None:
        self._waiting.append(pruned(flame))
        joined = sum(len(each.tree) for each in self._joined)
        if sum(len(each.tree) for each in self._waiting) >= max(joined, _FEW_NODES):
            self._join()

    def whole(self) -> Flame:
        self._join()
        return merge_flames(self._joined)

    def _join(self) -> None:
        if self._waiting:
            self._joined = [merge_flames([*self._joined, *self._waiting])]
            self._waiting = []


#: Trees that are joined in no time: not worth doing one by one.
_FEW_NODES = 50_000


def empty_tree() -> Tree:
    """A root and nothing below."""
    zero = np.zeros(1, np.int32)
    return Tree(zero, zero, np.ones(1, np.int32), Frames(("all",), ("",), np.zeros(1, np.uint8)))


def _event(profile: Profile, selection: Selection) -> str:
    if selection.event is not None:
        return selection.event
    return ", ".join(dict.fromkeys(event.name for event in profile.events))


def _outermost(bounds: Iterable[int | None], choose: Callable[[list[int]], int]) -> int | None:
    """The first begin or the last end; open as soon as one of them is."""
    known = list(bounds)
    told = [bound for bound in known if bound is not None]
    return choose(told) if len(told) == len(known) else None
