"""The kernel knows fewer memory cgroups than the limit, live and dying together.

The check that ended Pinterest's incident: ``grep memory /proc/cgroups`` said 68,680 where 240 were
alive. An image that has just booted has one or two hundred. Read on a booted node for as long as it
is watched, and judged by the lowest count; not applicable to an image that never ran.
"""

from __future__ import annotations

from sexton.prevent.gate.counting import counts, where
from sexton.prevent.gate.model import Checked, Place, Settings, Violation


def check(place: Place, settings: Settings) -> Checked:
    found = counts(place)
    if isinstance(found, Checked):
        return found
    least = min(found, key=lambda row: row.total or 0)
    total, limit = least.total or 0, settings["limit"]
    split = "" if least.live is None else f" ({least.live:,} live)"
    said = f"{total:,} memory cgroups{split}, limit {limit:,}"
    if total < limit:
        return Checked(said)
    broken = Violation(
        "node",
        f"the kernel knows {total:,} memory cgroups{split}; the limit is {limit:,}",
        where(least),
        facts=(f"lowest of {len(found)} counts by {least.method}",),
        remedy="sudo sexton diagnose  # names who leaves them",
    )
    return Checked(said, (broken,))
