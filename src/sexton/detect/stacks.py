"""Kernel stacks of certain cores in certain seconds, where stacks were taken at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from sexton.model.stack import StackCount
from sexton.model.window import Window

#: A stack belongs to a whole second: so much earlier or later it still counts.
SLACK_S = 1.0


def on_cores(
    window: Window, cores: Collection[str], span: tuple[float, float]
) -> tuple[StackCount, ...]:
    """What those cores were caught in between two moments (UNIX seconds)."""
    start, end = span[0] - SLACK_S, span[1] + SLACK_S
    return tuple(
        row
        for row in window.latest(StackCount) or ()
        if str(row.cpu) in cores and start <= window.wall(row.second_mono + 0.5) <= end
    )


def hottest(rows: Collection[StackCount]) -> tuple[str, float] | None:
    """The function most samples were in, itself, and its share in percent."""
    functions: Counter[str] = Counter()
    for row in rows:
        functions[row.frames[0]] += row.samples
    if not functions:
        return None
    name, samples = functions.most_common(1)[0]
    return name, 100 * samples / functions.total()
