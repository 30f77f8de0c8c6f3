"""A leak of memory cgroups, detected by its rate long before there are many.

It is proven in one of three ways, the first that applies. *Traced*: cgroups of one kind (one
parent, similar names) are removed and not released within the grace. *Traced and counted*: so many
are not released yet, and the number of dying cgroups grew by as many; that proves a leak in a watch
too short for the grace. *Counted*, if nothing was traced: the number of dying cgroups grew.

Each must have gone on throughout a stretch that reaches to the end of the window. Of several such
stretches the one with the highest certain rate is taken, so that a few deaths hours ago do not hide
a leak that began a minute ago.

Not a leak, however much it looks like one for a while: existing cgroups that are removed (then as
many fewer are live, or none were created), ordinary removals among which some stay (then the count
must confirm it), a destroy backlog that drains, and the boot of a node, whose units leave one or
two each; without a trace that excuses fewer than a hundred, in the first minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sexton.detect.churn import Churn, Family, churn, gaps
from sexton.detect.deaths import CONFIRMED, GRACE, Deaths
from sexton.detect.growth import ENOUGH, Count, Growth, counts, growth
from sexton.detect.registry import Threshold
from sexton.model.finding import Severity
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.rates import F64, Amount
from sexton.series.steps import rise, rises

TOO_MANY = Threshold(
    "too many", 1_000, "dying", "the incident's image gate fails a build that leaves so many"
)
SOON = Threshold("soon", 24, "h until too many", "a node is looked at once a day, if at all")
AT_ONCE = Threshold(
    "at once", 1, "h until too many", "sooner than anyone looks without being paged"
)
KEPT = Threshold(
    "kept", 50, "% not released", "if fewer stay, the number of dying cgroups must grow as well"
)
SETTLED = Threshold("settled", 10, "min since boot", "booting leaves a few dozen, once")
AT_BOOT = Threshold("at boot", 100, "dying", "twice the few dozen that a boot leaves")
SHORTEST = Threshold(
    "shortest", 4, "s of growth", "several times what a release takes: RCU and a worker, under 1 s"
)
TRACED = "tracefs cgroup_rmdir, cgroup_release"
COUNTED = "the number of dying memory cgroups"
#: Older counts say nothing about a leak that goes on now.
BACK_S = 3600.0
#: A stretch may be a quarter of the time since the first death, and need not be longer than this.
#: Counts do not show what ended, so they must have grown for longer.
_LONG_TRACED_S, _LONG_COUNTED_S = 60.0, 600.0
_SHARE = 4
#: A stretch is cut into so many parts; a leak has at least half of an equal share in each.
_PARTS = 3
#: A leak is over after so many times its longest pause, and at least so many seconds.
_PAUSES, _SILENCE_S = 2, 10.0
_HOUR_S = 3600.0


class Leak(NamedTuple):
    """`number` cgroups leaked in `seconds`; `dying` is the count now, `shown` who left them."""

    number: int
    seconds: float
    dying: int
    shown: str
    method: str

    @property
    def per_second(self) -> float:
        return Amount(self.number, self.seconds).rate

    @property
    def per_hour(self) -> float:
        return self.per_second * _HOUR_S

    @property
    def passed(self) -> bool:
        """Whether there are too many already."""
        return self.dying >= TOO_MANY.value

    @property
    def arrives_s(self) -> float:
        """Seconds until there are too many; if there are, until there are as many more."""
        missing = TOO_MANY.value if self.passed else rise(self.dying, TOO_MANY.value)
        return missing / self.per_hour * _HOUR_S

    @property
    def severity(self) -> Severity | None:
        """`None` if it takes too long to matter."""
        hours = self.arrives_s / _HOUR_S
        if hours <= AT_ONCE.value:
            return Severity.CRITICAL
        return Severity.WARNING if hours <= SOON.value else None


class Undecided(NamedTuple):
    """`number` cgroups, `shown`, that a watch of `seconds` was too short to judge."""

    number: int
    seconds: float
    shown: str

    @property
    def text(self) -> str:
        under = f" at {self.shown}" if self.shown else ""
        return (
            f"{self.number:,} more{under} in a watch of {duration(self.seconds)}, too short to tell"
            " whether they stay"
        )


class _Stretch(NamedTuple):
    """`number` deaths from `start_s` to `end_s`, monotonic seconds."""

    number: int
    start_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s

    @property
    def certain(self) -> float:
        """Deaths per second, less what may be chance (two standard deviations)."""
        return Amount(self.number - 2 * self.number**0.5, self.seconds).rate

    def less(self, number: int) -> _Stretch:
        """The same without so many that may not have stayed."""
        return self._replace(number=self.number - number)


def leak(window: Window) -> Leak | None:
    """The leak that goes on at the window's end; `None` if none is proven."""
    counted = counts(window)
    moved = growth(window)
    if not counted or (moved is not None and moved.draining):
        return None
    seen = churn(window)
    if seen is None or seen.traced is None:
        return _by_counts(window, counted)
    found = _by_releases(seen, seen.traced, counted, moved)
    if seen.traced.sure(moved):
        return found or _by_growth(seen, seen.traced, counted)
    # Those that may have been released are not in `found`; the count may have grown by more.
    more = _by_counts(window, counted)
    if found is None or more is None:
        return found or more
    if found.per_hour >= more.per_hour:
        return found
    return more._replace(shown=f"{found.shown} (at least {found.number:,})")


def undecided(window: Window) -> Undecided | None:
    """What is a leak if it stays, where none is proven because the watch was too short."""
    seen, moved = churn(window), growth(window)
    if moved is None or leak(window) is not None:
        return None
    if seen is None or seen.traced is None:
        too_short = moved.seconds < SHORTEST.value and not _is_booting(window, counts(window))
        found = Undecided(moved.by, moved.seconds, "") if too_short else None
    else:
        found = _unreleased(seen, seen.traced)
    if found is None or found.number < ENOUGH.value or _were_there(counts(window), found.number):
        return None
    pace = Leak(found.number, found.seconds, moved.last, found.shown, "")
    return found if pace.severity is not None else None


def _unreleased(seen: Churn, traced: Deaths) -> Undecided | None:
    """Most of one kind are not released yet, through a good part of a short watch."""
    if traced.seconds >= GRACE.value + SHORTEST.value:
        return None
    found = _going_on(seen, traced)
    if found is None or 2 * found[1].seconds < traced.seconds or not _were_made(found[1], found[0]):
        return None
    return Undecided(found[1].number, traced.seconds, found[0].called)


def _by_releases(
    seen: Churn, traced: Deaths, counted: Sequence[Count], moved: Growth | None
) -> Leak | None:
    """Removed and not released within the grace."""
    end_s = traced.end_s - GRACE.value  # one that died later may still be released
    found = []
    for family in seen.families:
        stretch = _stretch(family.kept_s, end_s, _LONG_TRACED_S)
        if stretch is not None:
            grew = _grew(counted, stretch.start_s)
            known = (
                _mostly_kept(family, family.kept_s) if grew is None else 2 * grew >= stretch.number
            )
            found += [(family, stretch)] if known else []
    if not found:
        return None
    times = [time for family, _ in found for time in family.kept_s]
    every = _stretches(times, end_s, _LONG_TRACED_S) or [found[0][1]]
    doubted = [death.died_s for death in traced.doubted]
    most = traced.doubtful(moved)
    # One that began after the loss is not in doubt.
    sure = [
        stretch.less(min(most, sum(time >= stretch.start_s for time in doubted)))
        for stretch in every
    ]
    born = sum(family.births for family, _ in found)
    proven = [stretch for stretch in sure if _is_proven(stretch, born, counted)]
    if not proven:
        return None
    most_certain = max(proven, key=lambda stretch: stretch.certain)
    others = f" and {len(found) - 1} more" if len(found) > 1 else ""
    shown = f"{found[0][0].called}{others}"
    return Leak(most_certain.number, most_certain.seconds, counted[-1].dying, shown, TRACED)


def _is_proven(stretch: _Stretch, born: int, counted: Sequence[Count]) -> bool:
    """Enough of them, for long enough, born in the window, and the count grew."""
    grew = _grew(counted, stretch.start_s)
    number = stretch.number
    return (
        number >= ENOUGH.value
        and stretch.seconds >= SHORTEST.value
        and born * 2 >= number
        and (grew is None or 2 * grew >= number)
    )


def _by_growth(seen: Churn, traced: Deaths, counted: Sequence[Count]) -> Leak | None:
    """Removed and not released yet, while the number of the dying grew by as many."""
    found = _going_on(seen, traced)
    if found is None or found[1].seconds < SHORTEST.value:
        return None
    family, stretch = found
    grew = _grew(counted, stretch.start_s)
    if grew is None or grew < CONFIRMED * stretch.number or not _were_made(stretch, family):
        return None
    method = f"{TRACED}; {COUNTED}"
    return Leak(stretch.number, stretch.seconds, counted[-1].dying, family.called, method)


def _by_counts(window: Window, counted: Sequence[Count]) -> Leak | None:
    """Growth throughout a stretch, while the number of live cgroups hardly changed."""
    if _is_booting(window, counted):
        return None
    recent = [count for count in counted if count.mono_s >= counted[-1].mono_s - BACK_S]
    stretch = _stretch(_lasting(recent), counted[-1].mono_s, _LONG_COUNTED_S)
    if stretch is None or stretch.seconds < max(SHORTEST.value, _long_enough(recent)):
        return None
    within = [count for count in recent if count.mono_s >= stretch.start_s]
    # Between two counts nothing shows that it went on.
    if len(within) < _PARTS or any(count.live is None for count in within):
        return None
    if _were_there(within, stretch.number):
        return None
    return Leak(stretch.number, stretch.seconds, counted[-1].dying, "", COUNTED)


def _long_enough(counted: Sequence[Count]) -> float:
    """Half of the time that was counted: the number goes up and down by some."""
    return min((counted[-1].mono_s - counted[0].mono_s) / 2, _LONG_COUNTED_S)


def _going_on(seen: Churn, traced: Deaths) -> tuple[Family, _Stretch] | None:
    """The kind that stays at the highest rate, counting those that may still be released."""
    found = [
        (family, stretch)
        for family in seen.families
        if _mostly_kept(family, family.open_s)
        and (stretch := _stretch(family.open_s, traced.end_s, _LONG_TRACED_S)) is not None
    ]
    return max(found, key=lambda pair: pair[1].certain, default=None)


def _is_booting(window: Window, counted: Sequence[Count]) -> bool:
    """Whether the node booted a moment ago and no more are dying than a boot leaves: counts do not
    show whose they are."""
    uptime = window.node.uptime_s if window.node else None
    if uptime is None or uptime >= SETTLED.value * 60:
        return False
    return not counted or counted[-1].dying < AT_BOOT.value


def _mostly_kept(family: Family, stayed_s: Sequence[float]) -> bool:
    return len(stayed_s) * 100 >= KEPT.value * (len(stayed_s) + family.released)


def _were_there(counted: Sequence[Count], number: int) -> bool:
    """Are so many fewer live that existing cgroups must have been removed?"""
    first, last = counted[0].live, counted[-1].live
    return first is not None and last is not None and 2 * rise(last, first) >= number


def _were_made(stretch: _Stretch, family: Family) -> bool:
    """Or are existing ones removed, and hardly any made?"""
    return family.births * 2 >= stretch.number


def _grew(counted: Sequence[Count], start_s: float) -> int | None:
    """How much the count of the dying grew since then; `None` if it was not counted twice."""
    before = [count for count in counted if count.mono_s <= start_s] or counted[:1]
    if counted[-1].mono_s <= before[-1].mono_s:
        return None
    return rise(before[-1].dying, counted[-1].dying)


def _lasting(counted: Sequence[Count]) -> list[float]:
    """When the dying came that were not fewer again later, evenly spread between two counts."""
    lowest = np.minimum.accumulate([count.dying for count in reversed(counted)])[::-1]
    came: list[float] = []
    for (before, after), number in zip(pairwise(counted), rises(lowest.tolist()), strict=True):
        came += np.linspace(before.mono_s, after.mono_s, number + 1)[1:].tolist()
    return came


def _stretch(times_s: Iterable[float], end_s: float, long_s: float) -> _Stretch | None:
    """The stretch up to `end_s` in which they died at the highest certain rate; `None` if they did
    not die throughout any."""
    found = _stretches(times_s, end_s, long_s)
    return max(found, key=lambda stretch: stretch.certain, default=None)


def _stretches(times_s: Iterable[float], end_s: float, long_s: float) -> list[_Stretch]:
    """Every stretch up to `end_s` throughout which they died."""
    times = np.sort(np.array([time for time in times_s if time <= end_s]))
    return [
        _Stretch(len(part), start_s, end_s)
        for start_s, part in _endings(times, end_s, long_s)
        if _holds(part, start_s, end_s)
    ]


def _endings(times: F64, end_s: float, long_s: float) -> Iterator[tuple[float, F64]]:
    """All of them, then those of the last half of the time, of the last quarter, and so on; but not
    of a few seconds, in which two pods that end together look like a leak."""
    start_s = float(times[0]) if len(times) else end_s
    least_s = max(min((end_s - start_s) / _SHARE, long_s), SHORTEST.value)
    while len(times) >= ENOUGH.value and start_s < end_s:
        yield start_s, times
        if end_s - start_s < 2 * least_s:
            return
        start_s = (start_s + end_s) / 2
        times = times[times >= start_s]


def _holds(times: F64, start_s: float, end_s: float) -> bool:
    """Whether they died in every part, and until now as far as their pauses tell."""
    parts, _ = np.histogram(times, _PARTS, (start_s, end_s))
    if min(parts) < max(len(times) // (2 * _PARTS), 1):
        return False
    silence_s = end_s - float(times[-1])
    return silence_s <= max(_PAUSES * max(gaps(times.tolist())), _SILENCE_S)
