"""Dead memory cgroups are few: under the limit, and not many times the living.

A dying memory cgroup has no directory any more and is still held by what was charged to it. Some
dozens are ordinary. Judged by the lowest count while the node was watched: against ``limit``, and
from ``at_least`` on against ``live_multiple`` times the live ones, which catches a leak days before
the limit does.
"""

from __future__ import annotations

from sexton.model.finding import Missing
from sexton.prevent.gate.counting import counts, where
from sexton.prevent.gate.model import Checked, Place, Settings, Violation


def check(place: Place, settings: Settings) -> Checked:
    found = counts(place)
    if isinstance(found, Checked):
        return found
    told = [row for row in found if row.dying is not None]
    if not told:
        reason = next((row.reason for row in found if row.reason), "dying ones cannot be counted")
        return Checked(missing=(Missing(reason, "sudo sexton gate  # on the node itself"),))
    least = min(told, key=lambda row: row.dying or 0)
    dying, live = least.dying or 0, least.live or 0
    limit, multiple = settings["limit"], settings["live_multiple"]
    from_here = f"from {settings['at_least']:,} on {multiple:g} times the live"
    said = f"{dying:,} dying, {live:,} live; limit {limit:,}, {from_here}"
    wrong = []
    if dying >= limit:
        wrong.append(f"the limit is {limit:,}")
    if dying >= settings["at_least"] and dying > multiple * live:
        times = f"{dying / live:.1f} times the live ones" if live else "and none live"
        wrong.append(f"that is {times}, where {multiple:g} is the most")
    if not wrong:
        return Checked(said)
    broken = Violation(
        "node",
        f"{dying:,} dead memory cgroups beside {live:,} live: {' and '.join(wrong)}",
        where(least),
        facts=(f"lowest of {len(told)} counts by {least.method}",),
        remedy="sudo sexton diagnose  # names who leaves them; sexton fix plan frees them",
    )
    return Checked(said, (broken,))
