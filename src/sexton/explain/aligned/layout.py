"""Which windows are compared: one before each event, and control windows around it.

Events close together are one *episode*, represented by its first event: what was seen before the
second was partly caused by the first. Every episode has its own control windows, nearest first and
alternately from both sides, so it is in the middle of them: slow drift is then no likelier to be
extreme at the event than anywhere else. A control window is whole steps (minutes) away, so it is at
the same place in the minute as the event; it keeps a distance from the windows of all events, and
belongs to one episode only.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest
from typing import NamedTuple

from sexton.model.text import count, seconds

#: With fewer events signals are ranked, but none is called significant.
LEAST_EVENTS = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared with what. docs/explain-method.md measures the defaults.

    `before_s` and `short_s` are the two lengths of the window before an event. Control windows are
    whole `step_s` away from their event (a job that runs every minute looks the same in both), and
    at least `quiet_s` from the window of any event. A step has room for both, so that an event is
    as far from its nearest controls as they are from one another: if they were closer together,
    they would be more alike than the event is like them, and it would stand out for that alone.
    `recorded` are the spans of monotonic time in which the node was recorded; if it is empty, the
    signals show them. `closer`: if there is no room for enough controls, windows may be closer
    together and shorter. `fdr` is the share of event sets without any cause that may give a
    discovery.
    """

    before_s: float = 30.0
    short_s: float = 5.0
    quiet_s: float = 30.0
    step_s: float = 60.0
    controls: int = 20
    most_events: int = 24
    permutations: int = 999
    fdr: float = 0.01
    most_ranked: int = 100
    recorded: tuple[tuple[float, float], ...] = ()
    seed: int = 5
    closer: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.short_s <= self.before_s or self.quiet_s < 0:
            raise ValueError("the short window is the shorter one")
        if self.before_s + self.quiet_s > self.step_s:
            raise ValueError("a step has room for a window and the quiet beside it")
        if min(self.controls, self.most_events, self.permutations) < 1:
            raise ValueError("no control windows")


#: Ways to pick one window of each stratum as the event's: enough for thousands of signals. More
#: events need fewer controls each, and what is not needed is not read.
_ARRANGEMENTS = 1e8
_LEAST_CONTROLS = 8
#: How far away a control may be, in steps per wanted control.
_REACH = 4
#: Readings do not fall on the edges of the recorded spans.
_SLACK_S = 2.0
#: Adjacent windows may touch.
_TOUCH_S = 1e-6
#: Events are periodic if their distances differ by less than this part.
_EVEN = 0.05


class Stratum(NamedTuple):
    """The end of the window before an event, and of each of its control windows."""

    event: float
    controls: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Windows end at the moments in `strata` and are `spans` long, the longer one last."""

    strata: tuple[Stratum, ...]
    spans: tuple[float, float]
    lookback_s: float
    notes: tuple[str, ...] = ()
    #: Events left out because they have no controls.
    alone: int = 0

    @property
    def windows(self) -> tuple[tuple[float, float], ...]:
        """What has to be read, the most important first: twice the window before each event, then
        the controls, nearest first."""
        found = [(stratum.event - self.lookback_s, stratum.event) for stratum in self.strata]
        rounds = zip_longest(*(stratum.controls for stratum in self.strata))
        ends = (end for some in rounds for end in some if end is not None)
        return (*found, *((end - self.spans[-1], end) for end in ends))

    @property
    def ends(self) -> list[float]:
        """Ends of all windows, stratum by stratum, the event's first."""
        return [end for stratum in self.strata for end in (stratum.event, *stratum.controls)]

    @property
    def arrangements(self) -> float:
        """The number of ways to pick one window of each stratum as the event's."""
        return math.prod(1 + len(stratum.controls) for stratum in self.strata)


def lay_out(
    events_mono_s: Iterable[float], recorded: Sequence[tuple[float, float]], plan: Plan
) -> Layout:
    """Choose the windows. If the recording is too short for whole minutes, they are closer
    together, and then shorter: the first layout with enough controls, else that with the most."""
    events = sorted({float(value) for value in events_mono_s if math.isfinite(value)})
    episodes = _episodes(events, 1.5 * plan.before_s)
    notes = []
    if len(episodes) < len(events):
        notes.append(
            f"{count(len(events), 'event')} in {count(len(episodes), 'episode')}: events within"
            f" {seconds(1.5 * plan.before_s)} of the previous one count as one episode"
        )
    found = []
    for rung in _ladder(plan):
        layout = _laid_out(events, episodes, sorted(recorded), rung)
        layout = replace(layout, notes=(*notes, *layout.notes))
        found.append(layout)
        if _is_enough(layout):
            return layout
    return max(found, key=lambda item: math.log(item.arrangements))


def _is_enough(layout: Layout) -> bool:
    """Do most events have enough controls, and was none left out for lack of them?"""
    numbers = sorted(len(stratum.controls) for stratum in layout.strata)
    return bool(numbers) and numbers[len(numbers) // 2] >= _LEAST_CONTROLS and not layout.alone


def _ladder(plan: Plan) -> list[Plan]:
    if not plan.closer:
        return [plan]
    half, third = plan.before_s / 2, plan.before_s / 3
    return [
        plan,
        replace(plan, quiet_s=half, step_s=plan.before_s + half),
        replace(
            plan,
            before_s=third,
            short_s=min(plan.short_s, third),
            quiet_s=half / 3,
            step_s=third + half / 3,
        ),
    ]


def _laid_out(
    events: list[float], episodes: list[float], recorded: list[tuple[float, float]], plan: Plan
) -> Layout:
    notes: list[str] = []
    known = [episode for episode in episodes if _is_recorded(episode, recorded, plan)]
    if len(known) < len(episodes):
        lost = count(len(episodes) - len(known), "event")
        notes.append(f"{lost} left out: the {seconds(plan.before_s)} before were not recorded")
    if len(known) > plan.most_events:
        notes.append(f"{plan.most_events} of {len(known):,} events were compared, evenly chosen")
        step = (len(known) - 1) / max(plan.most_events - 1, 1)
        known = [known[round(number * step)] for number in range(plan.most_events)]
    strata = _Search(events, recorded, plan).strata(known)
    compared = tuple(stratum for stratum in strata if stratum.controls)
    alone = len(strata) - len(compared)
    if alone:
        lost = count(alone, "event")
        notes.append(f"{lost} left out: no comparable time without events was recorded")
    notes += _spacing([stratum.event for stratum in compared])
    spans = (plan.short_s, plan.before_s)
    return Layout(compared, spans, 2 * plan.before_s, tuple(notes), alone)


def _episodes(events: list[float], apart: float) -> list[float]:
    found: list[float] = []
    last = -math.inf
    for event in events:
        if event - last > apart:
            found.append(event)
        last = event
    return found


def _is_recorded(event: float, recorded: Sequence[tuple[float, float]], plan: Plan) -> bool:
    """Was the event recorded, and at least half of the time before it?"""
    start = event - plan.before_s
    inside = sum(max(0.0, min(event, b) - max(start, a)) for a, b in recorded)
    return inside >= plan.before_s / 2 and any(a <= event <= b + _SLACK_S for a, b in recorded)


def _spacing(events: Sequence[float]) -> list[str]:
    steps = [b - a for a, b in pairwise(events)]
    if len(steps) < LEAST_EVENTS - 1:
        return []
    middle = sorted(steps)[len(steps) // 2]
    if max(abs(step - middle) for step in steps) > _EVEN * middle:
        return []
    return [
        f"the events come every {seconds(middle)}: anything else with that period looks like"
        " a cause"
    ]


class _Search:
    """Assigns control windows, each to one event."""

    def __init__(
        self, events: Sequence[float], recorded: Sequence[tuple[float, float]], plan: Plan
    ) -> None:
        self._events = events
        self._recorded = recorded
        self._plan = plan
        self._taken: list[float] = []

    def strata(self, known: Sequence[float]) -> list[Stratum]:
        plan = self._plan
        enough = math.ceil(_ARRANGEMENTS ** (1 / max(len(known), 1))) - 1
        wanted = min(plan.controls, max(enough, _LEAST_CONTROLS))
        found: list[list[float]] = [[] for _ in known]
        # By distance first, then by event: a window goes to the nearest event.
        for away in range(1, _REACH * plan.controls + 1):
            for event, mine in zip(known, found, strict=True):
                for end in (event - away * plan.step_s, event + away * plan.step_s):
                    if len(mine) < wanted and self._is_free(end):
                        insort(self._taken, end)
                        mine.append(end)
        return [Stratum(event, tuple(mine)) for event, mine in zip(known, found, strict=True)]

    def _is_free(self, end: float) -> bool:
        plan = self._plan
        start = end - plan.before_s
        if not any(a - _SLACK_S <= start and end <= b + _SLACK_S for a, b in self._recorded):
            return False
        # No event from `quiet_s` before the window until its own window would touch this one.
        first = bisect_left(self._events, start - plan.quiet_s + _TOUCH_S)
        last = end + plan.before_s + plan.quiet_s - _TOUCH_S
        if first < len(self._events) and self._events[first] < last:
            return False
        at = bisect_right(self._taken, start + _TOUCH_S)
        return at == len(self._taken) or self._taken[at] >= end + plan.before_s - _TOUCH_S
