"""The boxes of a flame graph: those wide enough to draw, in a stable order.

Siblings are sorted by name, so two graphs of one machine can be compared. A box has no position: it
starts where its parent starts, after its earlier siblings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sexton.model.profile import I64, UNKNOWN, Flame, FlameDifference, Kind, Tree
from sexton.model.text import printable
from sexton.reports.svg.colours import LARGE, STRENGTHS, name_shade

#: More boxes are slow to open and too narrow to see.
MOST_BOXES = 6000
#: Boxes below this share of all samples are left out.
LEAST_SHARE = 1e-4
#: A change with a q at or below this is significant.
SIGNIFICANT = 0.05
_LETTERS = {Kind.ROOT: "r", Kind.TASK: "t", Kind.KERNEL: "k", Kind.USER: "u", Kind.UNTOLD: "o"}


class Box(NamedTuple):
    """One function of one stack. `counts` is (total,) or (before, after)."""

    node: int
    depth: int
    counts: tuple[int, ...]
    own: int
    name: str
    module: str
    #: The CSS class: a letter for the kind and a digit for the name.
    shade: str
    #: In a difference: the significance of the change; NaN where not tested.
    q: float = float("nan")


def boxes_of(flame: Flame, most: int = MOST_BOXES) -> list[Box]:
    """The boxes of a flame graph, in pre-order."""
    totals = flame.tree.totals(flame.own)
    chosen = _wide_enough(totals, most)
    return [
        _box(flame.tree, node, (int(totals[node]),), int(flame.own[node]))
        for node in _in_order(flame.tree, chosen)
    ]


def difference_boxes(found: FlameDifference, most: int = MOST_BOXES) -> list[Box]:
    """The boxes of two flame graphs over one tree; `shade` shows how a share changed."""
    before, after = found.tree.totals(found.before), found.tree.totals(found.after)
    sides = (max(int(before[0]), 1), max(int(after[0]), 1)) if len(before) else (1, 1)
    chosen = _wide_enough(before / sides[0] + after / sides[1], most)
    boxes = []
    for node in _in_order(found.tree, chosen):
        counts = int(before[node]), int(after[node])
        change = counts[1] / sides[1] - counts[0] / sides[0]
        q = float(found.q[node])
        box = _box(found.tree, node, counts, int(found.after[node]))
        boxes.append(box._replace(shade=change_shade(change, q), q=q))
    return boxes


def shade(name: str, kind: int) -> str:
    """The CSS class of a function: the same name has the same colour everywhere.

    >>> shade("do_syscall_64", Kind.KERNEL), shade("all", Kind.ROOT)
    ('k6', 'r')
    """
    letter = _LETTERS.get(Kind(kind), "o")
    if letter == "r":
        return letter
    return f"{letter}{name_shade(name)}"


def change_shade(change: float, q: float) -> str:
    """Red where a share grew, blue where it shrank, by size; pale or grey where it may be chance.

    >>> [change_shade(change, 0.001) for change in (0.4, -0.02)]
    ['g5', 's2']
    >>> [change_shade(*pair) for pair in ((0.4, 0.3), (-0.3, float("nan")), (0.002, 0.3))]
    ['g5 m', 's5 m', 'n']
    """
    if not q <= SIGNIFICANT:  # or NaN: it was not tested
        return "n" if abs(change) < LARGE else f"{change_shade(change, 0.0)} m"
    if change == 0:
        return "n"
    strength = 1 + sum(abs(change) > step for step in STRENGTHS)
    return f"{'g' if change > 0 else 's'}{strength}"


def _wide_enough(totals: I64 | np.ndarray[tuple[int], np.dtype[np.float64]], most: int) -> I64:
    """Nodes in pre-order; ancestors are included, since their totals are never smaller."""
    if not len(totals) or totals[0] <= 0:
        return np.zeros(min(len(totals), 1), np.int64)
    least = float(totals[0]) * LEAST_SHARE
    wide = np.flatnonzero(totals >= max(least, 1e-12))
    if len(wide) > most:
        edge = np.partition(totals[wide], len(wide) - most)[len(wide) - most]
        above = wide[totals[wide] > edge]
        wide = above if len(above) else wide[:most]
    return wide.astype(np.int64)


def _in_order(tree: Tree, chosen: I64) -> list[int]:
    """The chosen nodes in pre-order, siblings by name."""
    below: dict[int, list[int]] = {}
    above: list[int] = []
    for node in chosen.tolist():
        while above and tree.end[above[-1]] <= node:
            above.pop()
        if above:
            below.setdefault(above[-1], []).append(node)
        above.append(node)
    names = tree.frames.names
    ordered: list[int] = []
    waiting = [0] if len(chosen) else []
    while waiting:
        node = waiting.pop()
        ordered.append(node)
        if node in below:
            waiting += sorted(
                below[node], key=lambda number: names[tree.frame[number]], reverse=True
            )
    return ordered


def shown_name(name: str, module: str) -> str:
    """A function's name, escaped; for an unknown one, the module it is in.

    >>> shown_name("[unknown]", "/usr/bin/python3.11"), shown_name("", "")
    ('[unknown] in python3.11', '(no name)')
    """
    if name == UNKNOWN and module not in ("", UNKNOWN):
        name = f"{name} in {module.rpartition('/')[2]}"
    return printable(name) or "(no name)"


def _box(tree: Tree, node: int, counts: tuple[int, ...], own: int) -> Box:
    frame = int(tree.frame[node])
    frames = tree.frames
    name = "all" if node == 0 else shown_name(frames.names[frame], frames.modules[frame])
    kind = Kind.ROOT if node == 0 else int(frames.kinds[frame])
    colour = shade(name, kind)
    return Box(
        node=node,
        depth=int(tree.depth[node]),
        counts=counts,
        own=own,
        name=name,
        module=printable(frames.modules[frame]),
        shade=colour,
    )
