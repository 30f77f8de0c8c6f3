"""The number of memory cgroups, live and dying, is below the limit.

This is the check that ended Pinterest's incident: ``grep memory /proc/cgroups`` showed 68,680 where
240 were live. An image that has just booted has one or two hundred. Counted on a booted node while
it is watched; the lowest count decides. Not applicable to an image.
"""

from __future__ import annotations

from sexton.prevent.gate.model import Checked, Settings, Violation
from sexton.prevent.gate.target import Target, count_source, memcg_counts


def check(target: Target, settings: Settings) -> Checked:
    counts = memcg_counts(target)
    if isinstance(counts, Checked):
        return counts
    lowest = min(counts, key=lambda row: row.total or 0)
    total, limit = lowest.total or 0, settings["limit"]
    split = "" if lowest.live is None else f" ({lowest.live:,} live)"
    summary = f"{total:,} memory cgroups{split}, limit {limit:,}"
    if total < limit:
        return Checked(summary)
    violation = Violation(
        "node",
        f"{total:,} memory cgroups{split}; the limit is {limit:,}",
        count_source(lowest),
        facts=(f"lowest of {len(counts)} counts by {lowest.method}",),
        remedy="sudo sexton diagnose  # names the unit that leaves them behind",
    )
    return Checked(summary, (violation,))
