"""A flame graph as text: an indented tree; chains of single calls share a line."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

import numpy as np

from sexton.model.profile import I64, Flame, FlameDifference, Floats, Tree
from sexton.model.text import count, printable, shorten
from sexton.profile.significance import LEAST_BLOCKS
from sexton.reports.svg.colours import LARGE
from sexton.reports.svg.flame_picture import SIGNIFICANT, shown_name
from sexton.reports.text.profile_head import percent, significance

#: Nodes with a smaller share are not shown.
CUT = 0.01
_MOST_LINES = 400
_MOST_CHANGES = 12
#: A change is reported at a callee that explains at least this share of it.
_EXPLAINED = 0.8


def flame_lines(flame: Flame, width: int = 80, cut: float = CUT) -> Iterator[str]:
    """The tree, the largest first. Each line: total share, self share, functions."""
    totals = flame.tree.totals(flame.own)
    everything = int(totals[0]) if len(totals) else 0
    if not everything:
        yield " no samples match"
        return
    yield f" {'TOTAL':>7} {'SELF':>7}  of {count(everything, 'sample')}"
    tree = _Forks(flame.tree, totals, flame.own, max(int(np.ceil(everything * cut)), 1))
    lines = 0
    for node, margin in tree.walk():
        chain, last = tree.chain(node)
        own = percent(int(flame.own[last]) / everything) if flame.own[last] else ""
        lead = f" {percent(totals[node] / everything):>7} {own:>7}  "
        text = " → ".join(chain)
        deep = min(len(margin), max(width - len(lead) - 30, 0))
        margin = margin[-deep:] if deep else ""
        for line in _wrapped(text, width - len(lead) - len(margin)):
            yield f"{lead}{margin}{line}"
            lead, margin = " " * len(lead), margin.replace("└ ", "  ").replace("├ ", "│ ")
            lines += 1
        if lines > _MOST_LINES:
            yield f" cut at {_MOST_LINES} lines: narrow with --from, --to, --cpu, --task, --grep"
            return
    yield f"                  below {percent(cut)}: not shown"


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, max(width, 20), subsequent_indent="  ", break_on_hyphens=False)


class _Forks:
    """The tree, with chains of single calls joined."""

    def __init__(self, tree: Tree, totals: I64, own: I64, least: int) -> None:
        self.tree, self.totals, self.own, self.least = tree, totals, own, least

    def walk(self) -> Iterator[tuple[int, str]]:
        """The first node of each line, and its indentation."""
        pending = [(node, "") for node in reversed(self._below(0))]
        while pending:
            node, margin = pending.pop()
            yield node, margin
            _, last = self.chain(node)
            below = self._below(last)
            stem = margin.replace("└ ", "  ").replace("├ ", "│ ")
            for at, child in enumerate(reversed(below)):
                pending.append((child, stem + ("└ " if at == 0 else "├ ")))

    def chain(self, node: int) -> tuple[list[str], int]:
        """Names from `node` down to where it forks, ends, or has samples of its own."""
        names = [self._name(node)]
        while True:
            below = self._below(node)
            thin = self.own[node] < self.least
            if len(below) != 1 or not thin or self.totals[below[0]] < 0.95 * self.totals[node]:
                return names, node
            node = below[0]
            names.append(self._name(node))

    def _below(self, node: int) -> list[int]:
        found, child, end = [], node + 1, int(self.tree.end[node])
        while child < end:
            found.append(child)
            child = int(self.tree.end[child])
        wide = [number for number in found if self.totals[number] >= self.least]
        return sorted(wide, key=lambda number: -int(self.totals[number]))

    def _name(self, node: int) -> str:
        frame = self.tree.frame[node]
        frames = self.tree.frames
        return shorten(shown_name(frames.names[frame], frames.modules[frame]), 60)


def difference_lines(found: FlameDifference, width: int = 80) -> Iterator[str]:
    """Significant changes, each listed where it comes from; then large ones that may be chance."""
    before, after = found.tree.totals(found.before), found.tree.totals(found.after)
    sides = int(before[0]) if len(before) else 0, int(after[0]) if len(after) else 0
    if not all(sides):
        yield " one side has no samples: nothing to compare"
        return
    shares = before / sides[0], after / sides[1]
    change = shares[1] - shares[0]
    tested = found.tested
    significant = np.flatnonzero(found.q <= SIGNIFICANT)
    if len(significant):
        listed = _sources(found.tree, change, significant)
        words = count(len(listed), "significant change")
        yield from _changes(found, shares, (listed, words), width)
    elif tested:
        blocks = found.blocks
        over = "" if blocks is None else f" over {blocks[0]} and {blocks[1]} blocks of time"
        yield f" no significant change ({count(tested, 'stack')} tested{over})"
    else:
        yield f" not tested ({untested_because(found)}): any of this may be noise"
    large = np.flatnonzero((abs(change) >= LARGE) & ~_around(found.tree, significant))
    if shown := _sources(found.tree, change, large):
        yield ""
        words = f"{count(len(shown), 'change')} of {percent(LARGE)} or more, "
        words += "not significant" if tested else "not tested"
        yield from _changes(found, shares, (shown, words), width)
        if tested:
            yield from wrap(
                "Large, but it may be one burst: within a side it came and went, or began once."
                " Longer spans or more captures would settle it.",
                width,
                initial_indent=" ",
                subsequent_indent=" ",
            )


def untested_because(found: FlameDifference) -> str:
    """Why no change could be tested."""
    if found.blocks is None:
        return "no timestamps"
    if min(found.blocks) < LEAST_BLOCKS:
        one, two = found.blocks
        return f"{one} and {two} blocks of time; {LEAST_BLOCKS} on each side are needed"
    return "too few samples"


def _changes(
    found: FlameDifference, shares: tuple[Floats, Floats], listed: tuple[list[int], str], width: int
) -> Iterator[str]:
    shown, words = listed
    yield f" {'BEFORE':>7} {'AFTER':>8} {'q':>8}  {words}"
    for node in shown[:_MOST_CHANGES]:
        was, now = percent(shares[0][node]), percent(shares[1][node])
        lead = f" {was:>7} {now:>8} {significance(float(found.q[node])):>8}  "
        path = [printable(found.tree.frames.names[frame]) for frame in found.tree.path(node)]
        task = " (task)" if len(path) == 1 else ""
        yield lead + shorten(path[-1], width - len(lead) - len(task)) + task
        if len(path) > 1:
            yield " " * len(lead) + _path(path[:-1], width - len(lead))
    if len(shown) > _MOST_CHANGES:
        yield f" and {len(shown) - _MOST_CHANGES} smaller changes: see --format json"


def _around(tree: Tree, nodes: I64) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Nodes above and below these, and these."""
    inside = np.zeros(len(tree) + 1, np.int64)
    np.add.at(inside, nodes, 1)
    np.add.at(inside, tree.end[nodes], -1)
    here = np.zeros(len(tree) + 1, np.int64)
    here[nodes + 1] = 1
    before = np.cumsum(here)
    above = before[tree.end] > before[:-1]
    return (np.cumsum(inside)[:-1] > 0) | above


def _sources(tree: Tree, change: Floats, nodes: I64) -> list[int]:
    """The nodes, the largest change first, without those that a callee among them explains."""
    named = np.zeros(len(tree))
    named[nodes] = change[nodes]
    kept = []
    for node in nodes.tolist():
        if node == 0:
            continue
        below = named[node + 1 : tree.end[node]]
        most = below.max(initial=0.0) if change[node] > 0 else -below.min(initial=0.0)
        if most < _EXPLAINED * abs(change[node]):
            kept.append(node)
    return sorted(kept, key=lambda node: -abs(float(change[node])))


def _path(names: list[str], width: int) -> str:
    """The callers, the nearest last; the middle of a long path is left out."""
    text = "in " + " → ".join(names) if names else ""
    kept = list(names)
    while len(text) > width and len(kept) > 2:
        kept.pop(1)
        text = f"in {kept[0]} → … → " + " → ".join(kept[1:])
    return shorten(text, width)
