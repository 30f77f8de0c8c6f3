"""A flame graph in letters: a tree cut where it gets thin, that steps in only where it forks."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

import numpy as np

from sexton.model.flame import Flame, FlameDifference
from sexton.model.profile import I64, Tree
from sexton.model.text import count, printable, shorten
from sexton.reports.svg.flame_picture import SIGNIFICANT, shown_name
from sexton.reports.text.profile_head import percent, significance

#: What is thinner is left out, and said to be.
CUT = 0.01
_MOST_LINES = 400
_MOST_CHANGES = 12
#: A change that one call below explains so far is told there.
_EXPLAINED = 0.8


def flame_lines(flame: Flame, width: int = 80, cut: float = CUT) -> Iterator[str]:
    """The tree, the widest first. Each line: share with all it calls, share itself, functions."""
    totals = flame.tree.totals(flame.own)
    everything = int(totals[0]) if len(totals) else 0
    if not everything:
        yield " no sample is in this choice"
        return
    yield f" {'TOTAL':>7} {'ITSELF':>7}  of {count(everything, 'sample')}"
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
            yield " and more: --from, --to, --cpu, --task or --grep choose less of it"
            return
    yield f"                  what is below {percent(cut)} is not shown"


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, max(width, 20), subsequent_indent="  ", break_on_hyphens=False)


class _Forks:
    """The tree, with functions that only call one other joined to it."""

    def __init__(self, tree: Tree, totals: I64, own: I64, least: int) -> None:
        self.tree, self.totals, self.own, self.least = tree, totals, own, least

    def walk(self) -> Iterator[tuple[int, str]]:
        """Where a line begins, and what stands left of it."""
        waiting = [(node, "") for node in reversed(self._below(0))]
        while waiting:
            node, margin = waiting.pop()
            yield node, margin
            _, last = self.chain(node)
            below = self._below(last)
            stem = margin.replace("└ ", "  ").replace("├ ", "│ ")
            for at, child in enumerate(reversed(below)):
                waiting.append((child, stem + ("└ " if at == 0 else "├ ")))

    def chain(self, node: int) -> tuple[list[str], int]:
        """Names from `node` to where it forks, ends, or takes time itself."""
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
        wide = [each for each in found if self.totals[each] >= self.least]
        return sorted(wide, key=lambda each: -int(self.totals[each]))

    def _name(self, node: int) -> str:
        frame = self.tree.frame[node]
        frames = self.tree.frames
        return shorten(shown_name(frames.names[frame], frames.modules[frame]), 60)


def difference_lines(found: FlameDifference, width: int = 80) -> Iterator[str]:
    """What took a larger or a smaller share, surely; each told where its change comes from."""
    before, after = found.tree.totals(found.before), found.tree.totals(found.after)
    sides = int(before[0]) if len(before) else 0, int(after[0]) if len(after) else 0
    if not all(sides):
        yield " one side has no sample: nothing to compare"
        return
    change = after / sides[1] - before / sides[0]
    tested = int(np.count_nonzero(~np.isnan(found.q)))
    sure = np.flatnonzero(found.q <= SIGNIFICANT if tested else abs(change) >= CUT)
    shown = _told_once(found.tree, change, sure)
    if not tested:
        yield " nothing was tested (no times, or too few samples): chance may have done any of this"
        yield ""
    elif not shown:
        yield f" nothing changed significantly ({count(tested, 'stack')} tested)"
        return
    words = count(len(sure), "significant change") if tested else "changes of 1 % and more"
    yield f" {'BEFORE':>7} {'AFTER':>8} {'q':>8}  {words}"
    for node in shown[:_MOST_CHANGES]:
        shares = percent(before[node] / sides[0]), percent(after[node] / sides[1])
        lead = f" {shares[0]:>7} {shares[1]:>8} {significance(float(found.q[node])):>8}  "
        path = [printable(found.tree.frames.names[frame]) for frame in found.tree.path(node)]
        task = " (task)" if len(path) == 1 else ""
        yield lead + shorten(path[-1], width - len(lead) - len(task)) + task
        if len(path) > 1:
            yield " " * len(lead) + _path(path[:-1], width - len(lead))
    if len(shown) > _MOST_CHANGES:
        yield f" and {len(shown) - _MOST_CHANGES} smaller ones: --format json has them"


def _told_once(
    tree: Tree, change: np.ndarray[tuple[int], np.dtype[np.float64]], sure: I64
) -> list[int]:
    """Significant nodes, the largest change first, without those that one below them explains."""
    told = []
    for node in sure.tolist():
        if node == 0:
            continue
        below = change[node + 1 : tree.end[node]]
        most = below.max(initial=0.0) if change[node] > 0 else -below.min(initial=0.0)
        if most < _EXPLAINED * abs(change[node]):
            told.append(node)
    return sorted(told, key=lambda node: -abs(float(change[node])))


def _path(names: list[str], width: int) -> str:
    """The callers, the nearest last; the middle of a long way is left out."""
    text = "in " + " → ".join(names) if names else ""
    kept = list(names)
    while len(text) > width and len(kept) > 2:
        kept.pop(1)
        text = f"in {kept[0]} → … → " + " → ".join(kept[1:])
    return shorten(text, width)
