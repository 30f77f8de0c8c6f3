"""Compare two flame graphs node by node, and test which changes are significant.

Both sides are selections of samples, from one capture or two. Their trees are joined, their shares
compared, and each node with enough samples is tested over blocks of time (see
`sexton.profile.significance`): a burst of a hundred samples in one second is one event, and a test
that counted a hundred would report every burst as a change.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sexton.model.profile import I32, I64, Flame, FlameDifference, Profile, Tree
from sexton.profile.select import Selection, chosen_in, window
from sexton.profile.significance import LEAST_SAMPLES, Blocks, difference_q, observations
from sexton.profile.stack_tree import join, subtree

if TYPE_CHECKING:
    from sexton.profile.captures import Opened

#: Limits on tested nodes (the largest first) and on blocks per side: 8 MB of counters.
MOST_TESTED = 20_000
MOST_BLOCKS = 48
_BLOCK_NS = 1_000_000_000
#: A short side gets shorter blocks, but none shorter than a burst.
_LEAST_BLOCKS = 8
_LEAST_BLOCK_NS = 100_000_000


class Side(NamedTuple):
    """A selection of samples of a capture."""

    opened: Opened
    selection: Selection


class Items(NamedTuple):
    """The nodes counted per block, each with everything below it.

    `place` maps nodes of the profile's tree to nodes of `tree`.
    """

    tree: Tree
    nodes: I32
    place: I32


class Cut(NamedTuple):
    """How time is divided into blocks."""

    start_ns: int
    block_ns: int
    number: int


def difference(before: Side, after: Side) -> FlameDifference:
    """The joined flame graph with counts of both sides; `q` where samples have timestamps."""
    found = difference_of(
        before.opened.flame(before.selection), after.opened.flame(after.selection)
    )
    cuts = _cut(before), _cut(after)
    if cuts[0] is None or cuts[1] is None:
        return found
    nodes, small = _tested(found)
    counted = [_blocks(side, small, cut) for side, cut in ((before, cuts[0]), (after, cuts[1]))]
    found.q[nodes] = difference_q(*counted)
    return replace(found, blocks=(observations(counted[0]), observations(counted[1])))


def difference_of(before: Flame, after: Flame) -> FlameDifference:
    """The same without `q`: two flame graphs alone cannot be tested."""
    tree, places = join([before.tree, after.tree])
    counts = []
    for flame, place in zip((before, after), places, strict=True):
        own = np.zeros(len(tree), np.int64)
        np.add.at(own, place, flame.own)
        counts.append(own)
    return FlameDifference(tree, counts[0], counts[1], np.full(len(tree), np.nan))


def block_counts(profile: Profile, selection: Selection, items: Items, cut: Cut) -> Blocks:
    """Per block and node: the chosen samples in it or below it.

    The starts and ends of the nodes divide the pre-order into segments. Samples are counted per
    segment, and a node's count is a difference of running sums: one pass over the samples, and
    memory for nodes times blocks, however large the tree is.
    """
    rows = window(profile, selection)
    chosen = chosen_in(profile, selection, rows)
    node = items.place[profile.node[rows][chosen]]
    block = (profile.time_ns[rows][chosen] - cut.start_ns) // cut.block_ns
    inside = (block >= 0) & (block < cut.number)
    block, node = block[inside], node[inside]
    weight = None if profile.weight is None else profile.weight[rows][chosen][inside]
    ends = items.tree.end[items.nodes]
    border = np.zeros(len(items.tree) + 1, np.bool_)
    border[0] = True
    border[items.nodes] = True
    border[ends] = True
    segment = np.cumsum(border) - 1
    width = int(segment[-1]) + 1
    counts = np.bincount(block * width + segment[node], weight, minlength=cut.number * width)
    running = np.zeros((cut.number, width + 1), np.int64)
    np.cumsum(counts.reshape(cut.number, width), axis=1, out=running[:, 1:], dtype=np.int64)
    return Blocks(
        running[:, segment[ends]] - running[:, segment[items.nodes]], running[:, -1].copy()
    )


def _cut(side: Side) -> Cut | None:
    span = side.opened.span_ns
    if span is None:
        return None
    start, end = side.selection.within(span)
    length = max(end - start, 1)
    block = _BLOCK_NS
    if length < _LEAST_BLOCKS * block:
        block = max(-(-length // _LEAST_BLOCKS), _LEAST_BLOCK_NS)
    block = max(block, -(-length // MOST_BLOCKS))
    return Cut(start, block, -(-length // block))


def _tested(found: FlameDifference) -> tuple[I64, Tree]:
    """The nodes worth testing, and the tree of only those.

    The largest first, callers before callees: every ancestor of a chosen node is chosen too.
    """
    total = found.tree.totals(found.before + found.after)
    order = np.argsort(-total, kind="stable")[:MOST_TESTED]
    nodes = np.sort(order[total[order] >= LEAST_SAMPLES])
    if not len(nodes):
        nodes = np.zeros(1, np.int64)
    kept = np.zeros(len(found.tree), np.bool_)
    kept[nodes] = True
    return nodes, subtree(found.tree, kept)[0]


def _blocks(side: Side, small: Tree, cut: Cut) -> Blocks:
    counts = np.zeros((cut.number, len(small)), np.int64)
    samples = np.zeros(cut.number, np.int64)
    for profile in side.opened.profiles(side.selection.start_ns, side.selection.end_ns):
        tree, (nodes, place) = join([small, profile.tree])
        part = block_counts(profile, side.selection, Items(tree, nodes, place), cut)
        counts += part.counts
        samples += part.samples
    return Blocks(counts, samples)
