"""A leak of memory cgroups, detected by its rate long before there are many.

It is proven in one of two ways. *Traced*: cgroups of one kind (one parent, similar names) were
removed throughout the stretch, at least half of them were not released, and the last of them only a
moment ago. *Counted*, if nothing was traced: the number of dying cgroups grew in every part of the
stretch.

Not a leak, however much it looks like one for a while: existing cgroups that are removed (then as
many fewer are live, or none were created), a destroy backlog that drains, and the boot of a node,
whose units leave one or two each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sexton.detect.churn import Family, churn, gaps
from sexton.detect.deaths import GRACE, Deaths
from sexton.detect.growth import ENOUGH, Count, counts, growth
from sexton.detect.registry import Threshold
from sexton.model.finding import Severity
from sexton.model.window import Window
from sexton.series.steps import rises

TOO_MANY = Threshold(
    "too many", 1_000, "dying", "the incident's image gate fails a build that leaves so many"
)
SOON = Threshold("soon", 24, "h until too many", "a node is looked at once a day, if at all")
AT_ONCE = Threshold(
    "at once", 1, "h until too many", "sooner than anyone looks without being paged"
)
KEPT = Threshold("kept", 50, "% not released", "ordinary removals are released within a second")
SETTLED = Threshold("settled", 10, "min since boot", "booting leaves a few dozen, once")
#: Older counts say nothing about a leak that goes on now.
_BACK_S = 3600.0
#: A stretch is cut into so many parts; a leak is in all of them.
_PARTS = 3
#: A leak is over if the last death is so many median gaps ago, and at least so many seconds.
_GAPS, _SILENCE_S = 3, 10.0
_HOUR_S = 3600.0


class Leak(NamedTuple):
    """`number` cgroups leaked in `seconds`; `dying` is the count now, `shown` who left them."""

    number: int
    seconds: float
    dying: int
    shown: str
    method: str

    @property
    def per_hour(self) -> float:
        return self.number / self.seconds * _HOUR_S

    @property
    def arrives_s(self) -> float:
        """Seconds until there are too many; 0 if there are."""
        return max(TOO_MANY.value - self.dying, 0.0) / self.per_hour * _HOUR_S

    @property
    def severity(self) -> Severity | None:
        """`None` if it takes too long to matter."""
        hours = self.arrives_s / _HOUR_S
        if hours <= AT_ONCE.value:
            return Severity.CRITICAL
        return Severity.WARNING if hours <= SOON.value else None


def leak(window: Window) -> Leak | None:
    """The leak that goes on at the window's end; `None` if none is proven."""
    counted = counts(window)
    moved = growth(window)
    if not counted or (moved is not None and moved.draining):
        return None
    seen = churn(window)
    if seen is None or seen.traced is None:
        return _by_counts(window, counted)
    leaking = [family for family in seen.families if _leaks(family, seen.traced)]
    number = sum(family.kept for family in leaking) - seen.traced.doubtful(moved)
    if number < ENOUGH.value:
        return None if seen.traced.sure(moved) else _by_counts(window, counted)
    start = min(min(family.kept_s) for family in leaking)
    if seen.births * 2 < number or _was_freed(counted, start, number):
        return None
    others = f" and {len(leaking) - 1} more" if len(leaking) > 1 else ""
    return Leak(
        number,
        _ripe_end(seen.traced) - start,
        counted[-1].dying,
        f"{leaking[0].shown}{others}",
        "tracefs cgroup_rmdir, cgroup_release",
    )


def _ripe_end(traced: Deaths) -> float:
    """A cgroup that died after this time may still be released."""
    return traced.end_s - GRACE.value


def _leaks(family: Family, traced: Deaths) -> bool:
    """Whether this family dies throughout the stretch and until now, mostly without a release."""
    times = sorted(family.kept_s)
    if len(times) < ENOUGH.value or len(times) * 100 < KEPT.value * (len(times) + family.released):
        return False
    end = _ripe_end(traced)
    if end - times[-1] > max(_GAPS * float(np.median(gaps(times))), _SILENCE_S):
        return False
    return _in_every_part(times, times[0], end)


def _in_every_part(times: Sequence[float], start: float, end: float) -> bool:
    part = (end - start) / _PARTS
    if part <= 0:
        return False
    return len({min(int((time - start) / part), _PARTS - 1) for time in times}) == _PARTS


def _was_freed(counted: Sequence[Count], start: float, number: int) -> bool:
    """Did the count grow since `start` by less than half of what the trace has unreleased?"""
    before = [count for count in counted if count.mono_s <= start] or counted[:1]
    after = counted[-1]
    if after.mono_s <= before[-1].mono_s:
        return False
    return 2 * rises((before[-1].dying, after.dying))[0] < number


def _by_counts(window: Window, counted: Sequence[Count]) -> Leak | None:
    """Growth in every part of the last hour, while the number of live cgroups hardly changed."""
    uptime = window.node.uptime_s if window.node else None
    if uptime is not None and uptime < SETTLED.value * 60:
        return None
    recent = [count for count in counted if count.mono_s >= counted[-1].mono_s - _BACK_S]
    if len(recent) <= _PARTS:
        return None
    edges = [round(part * (len(recent) - 1) / _PARTS) for part in range(_PARTS + 1)]
    grew = rises([count.dying for count in recent], edges)
    number = sum(grew)
    # A backlog that builds up slows down; a leak keeps its rate.
    if number < ENOUGH.value or min(grew) * 2 * _PARTS < number:
        return None
    first, last = recent[0], recent[-1]
    if first.live is None or last.live is None or 2 * rises((last.live, first.live))[0] >= number:
        return None
    seconds = last.mono_s - first.mono_s
    return Leak(number, seconds, last.dying, "", "the number of dying memory cgroups")
