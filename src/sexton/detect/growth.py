"""How the number of dead memory cgroups moves: three ways to tell, each with its name.

The census of two moments gives the *net* growth of the window; traced deaths without release give
its gross; dying ÷ uptime gives an average since boot, which says nothing about today. Only the
first two may be carried forward, and only where they rest on at least five deaths.
"""

from __future__ import annotations

from typing import NamedTuple

from sexton.detect.deaths import Deaths
from sexton.detect.registry import Threshold
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.window import Window

ENOUGH = Threshold(
    "enough", 5, "deaths in the window", "fewer are chance and no basis for a forecast"
)
DRAIN = Threshold(
    "draining",
    2,
    "% fewer a second",
    "a destroy backlog empties within a minute; nothing else frees zombies that fast",
)


class Growth(NamedTuple):
    """`by` more (fewer, where negative) in `seconds`; the last step in percent a second."""

    first: int
    last: int
    seconds: float
    last_step_percent_s: float

    @property
    def by(self) -> int:
        return self.last - self.first

    @property
    def draining(self) -> bool:
        """Emptying by itself: fewer than at the start, and still falling fast at the end.

        A heap that grew in the window and shrank a little at its end is no backlog.
        """
        return self.by < 0 and self.last_step_percent_s <= -DRAIN.value

    @property
    def drained_in_s(self) -> float | None:
        """When it would be empty at the pace of the last step."""
        if not self.draining:
            return None
        return 100.0 / -self.last_step_percent_s


def growth(window: Window) -> Growth | None:
    """Between the first and the last census that could count; `None` where there is only one."""
    counted: list[tuple[float, int, CgroupCensus]] = []
    for batch in window.batches(CgroupCensus) or ():
        for row in batch.rows[:1]:
            if row.dying is not None:
                counted.append((batch.mono_s, row.dying, row))
    if len(counted) < 2:
        return None
    (start, first, before), (end, last, after) = counted[0], counted[-1]
    if (before.scope, before.method) != (after.scope, after.method):
        return None  # counted by another rule: the difference is no growth
    # Neighbours closer than a second measure the reading, not the kernel: look further back.
    at, number, _ = next(
        (count for count in reversed(counted[:-1]) if end - count[0] >= 1.0), counted[0]
    )
    if end <= start:
        return None
    step = 100.0 * (last - number) / max(number, 1) / (end - at) if end - at >= 1.0 else 0.0
    return Growth(first, last, end - start, step)


def pace(moved: Growth | None, traced: Deaths | None) -> float | None:
    """Zombies a second, fit to be carried forward; `None` where too few died to say.

    The census is believed first, since it counts what was freed meanwhile as well.
    """
    if moved is not None:
        return moved.by / moved.seconds if moved.by >= ENOUGH.value else None
    if traced is None or traced.seconds <= 0:
        return None
    number = len(traced.unreleased)
    return number / traced.seconds if number >= ENOUGH.value else None


def confirms(moved: Growth | None, number: int) -> bool:
    """Did the count itself grow by about as many as a trace says stayed behind?

    Then no release got lost, however many events the trace buffer dropped.
    """
    return moved is not None and number > 0 and moved.by >= 0.9 * number
