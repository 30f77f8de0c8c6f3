"""How long freeing will hold one core, said before it does.

From the count and two prices, both measured on real zombies (Linux 6.18, memory on v1, one page
each): 3,000 held by clean page cache went in 0.13 s, and 20,000 held by tmpfs, which nothing can
reclaim, cost 4.4 s in which none went. That second price is of sixteen fruitless tries
(MAX_RECLAIM_RETRIES), and only between two tries does the kernel look for a signal: a sixteenth of
it is how long a core is held whatever anybody does. Machines differ by a factor; the first round
measures this one, and the rounds stop by its clock.

>>> found = price(20_000, stall_s=0.5)
>>> f"{found.least_s:.2f} {found.most_s:.2f} {found.hold_s:.3f}"
'0.87 3.19 0.275'
"""

from __future__ import annotations

from typing import NamedTuple

from sexton.cure.reclaim.stakes import Stakes
from sexton.model.text import seconds

#: Of one that can be freed, and of one that cannot, for the whole of a fruitless order.
FREED_US = 43.3
STUCK_US = 220.0
TRIES = 16
SOURCE = (
    "measured on Linux 6.18: 3,000 of page cache in 0.13 s; 20,000 of tmpfs in 4.4 s, none freed"
)
#: Fruitless bites in a row before we believe it.
FRUITLESS = 3
#: How long an order may go without freeing one before it is called off.
STALL_S = 1.0


class Estimate(NamedTuple):
    """Seconds of one core: if all can be freed; at the most (those that can be come first, and the
    rest cannot); and the longest stretch in which nothing can call it off. All are `None` where
    the number of the dying is."""

    dying: int | None
    least_s: float | None
    most_s: float | None
    hold_s: float | None
    source: str = SOURCE

    @property
    def sentence(self) -> str:
        """For the plan."""
        if self.dying is None or self.least_s is None or self.most_s is None or not self.hold_s:
            return "how long it takes cannot be told: the number of dying cgroups is unknown"
        return (
            f"one core for about {seconds(self.least_s)} if all {self.dying:,} can be freed,"
            f" {seconds(self.most_s)} at the most; at a stretch {seconds(self.hold_s)}, in which it"
            " cannot be called off"
        )


def estimate(found: Stakes, stall_s: float = STALL_S) -> Estimate:
    """Of freeing below that parent. On v1 the number is the whole node's: an upper bound."""
    number = found.dying.number
    if number is None:
        return Estimate(None, None, None, None)
    return price(number, stall_s)


def price(number: int, stall_s: float = STALL_S) -> Estimate:
    """For so many dying cgroups."""
    hold_s = number * STUCK_US / TRIES / 1e6
    whole_s = number * STUCK_US / 1e6
    stuck_s = FRUITLESS * min(whole_s, stall_s + hold_s)
    least_s = number * FREED_US / 1e6
    return Estimate(number, least_s, least_s + stuck_s, hold_s)
