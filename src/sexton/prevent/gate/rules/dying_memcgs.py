"""Dying memory cgroups are below the limit and not many times the live ones.

A dying memory cgroup has been removed but is not freed, because memory is still charged to it. A
few dozen are normal. The lowest count while the node is watched decides: it must be below
``limit``, and from ``at_least`` on at most ``live_multiple`` times the live ones, which catches a
leak days before the limit does.
"""

from __future__ import annotations

from sexton.model.finding import Missing
from sexton.prevent.gate.model import Checked, Settings, Violation
from sexton.prevent.gate.target import Target, count_source, memcg_counts


def check(target: Target, settings: Settings) -> Checked:
    counts = memcg_counts(target)
    if isinstance(counts, Checked):
        return counts
    known = [row for row in counts if row.dying is not None]
    if not known:
        reason = next((row.reason for row in counts if row.reason), "")
        what = reason or "dying memory cgroups could not be counted"
        return Checked(missing=(Missing(what, "sudo sexton gate  # on the node itself"),))
    lowest = min(known, key=lambda row: row.dying or 0)
    dying, live = lowest.dying or 0, lowest.live or 0
    limit, multiple, at_least = (settings[key] for key in ("limit", "live_multiple", "at_least"))
    summary = (
        f"{dying:,} dying, {live:,} live; limit {limit:,},"
        f" or {multiple:g} times the live ones if there are at least {at_least:,}"
    )
    reasons = []
    if dying >= limit:
        reasons.append(f"the limit is {limit:,}")
    if dying >= at_least and dying > multiple * live:
        ratio = f"{dying / live:.1f} times the live ones" if live else "none live"
        reasons.append(f"{ratio} (at most {multiple:g} times allowed)")
    if not reasons:
        return Checked(summary)
    violation = Violation(
        "node",
        f"{dying:,} dying memory cgroups, {live:,} live: {'; '.join(reasons)}",
        count_source(lowest),
        facts=(f"lowest of {len(known)} counts by {lowest.method}",),
        remedy="sudo sexton diagnose  # names what leaves them behind; sexton fix plan frees them",
    )
    return Checked(summary, (violation,))
