"""How events are compared with the time around them."""

from __future__ import annotations

from dataclasses import dataclass

#: Fewer events can be ranked; nothing is called significant.
LEAST_EVENTS = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """What is compared with what. The defaults are those that docs/explain-method.md measures.

    `before_s` and `short_s` are the two lengths of the window before an event. Control windows are
    whole `step_s` away from their event (a job that runs every minute looks the same in both), and
    nothing within `quiet_s` of an event's window is one. A step has room for both, so that an event
    is as far from its nearest controls as they are from one another: if they were closer they would
    be more alike than the event is like them, and the event would stand out for that alone.
    `recorded` are the stretches of monotonic time in which the node was recorded; where it is empty
    the signals tell. `closer`: where there is no room for so many controls, windows may be closer
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
            raise ValueError("nothing to compare with")
