"""What happens by the clock, closer together than the windows it is compared in: a restart loop.

Ends of a unit that come every ten seconds are no one episode, and between them is no quiet half
minute to compare with. There is the middle of each gap: so a loop is compared with itself, the last
quarter before each of its moments with as many seconds half way between two of them. Each moment is
then an event of its own.

What goes on all through the loop is in both and is not found; that is what links are for. A loop so
quick that a quarter of its gap holds no two readings is told as one episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sexton.detect.spread import median
from sexton.explain.aligned.plan import LEAST_EVENTS, Plan
from sexton.model.text import seconds

#: Readings are a second apart, and a rate needs two steps to be one.
_LEAST_BEFORE_S = 2.0
#: By the clock: most gaps differ from the middle one by less than this part of it. Windows before a
#: moment and half way to the next are an eighth of a gap apart.
_EVEN = 1 / 8
_MOST = 3 / 4


class Loop(NamedTuple):
    """How a loop is compared, and what its reader should know of that."""

    plan: Plan
    note: str


def loop_of(moments: Sequence[float]) -> Loop | None:
    """`None` where they are too few, too far apart, too irregular or too quick for it.

    >>> loop_of([10.0 * n for n in range(9)]).plan.before_s
    2.5
    >>> loop_of([60.0 * n for n in range(9)]) is loop_of([0.5 * n for n in range(9)]) is None
    True
    """
    gaps = [after - before for before, after in pairwise(sorted(moments))]
    if len(moments) < LEAST_EVENTS:
        return None
    gap = median(gaps)
    even = sum(abs(each - gap) <= _EVEN * gap for each in gaps)
    apart = 1.5 * Plan().before_s  # as far apart each is an episode by itself
    if gap > apart or gap / 4 < _LEAST_BEFORE_S or even < _MOST * len(gaps):
        return None
    plan = Plan(before_s=gap / 4, short_s=gap / 8, quiet_s=gap / 8, step_s=gap / 2, closer=False)
    note = (
        f"a loop, once in {seconds(gap)}: the last {seconds(gap / 4)} before each time are compared"
        " with the middle of the gaps"
    )
    return Loop(plan, note)
