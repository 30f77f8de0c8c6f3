"""How often each unit restarted while we looked, by rules that `NRestarts` needs.

`NRestarts` counts automatic restarts only, is cleared by ``systemctl reset-failed`` and by a manual
start after a stop, and so can go down. The rules:

- a decrease is a new baseline, never a negative step and never "everything since zero";
- a step counts only if the main process was started anew meanwhile (`main_start_us` moved), where
  that is known: a counter that moved without it belongs to a start that never came to be;
- a manual restart moves the start time and not the counter: it does not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from sexton.model.unit import Unit
from sexton.model.window import Columns, Window

FIELDS = ("restarts", "main_start_us")


@dataclass(frozen=True, slots=True)
class RestartCount:
    """Restarts of one unit: `count` between its first and last reading, `seconds` apart.

    `since_boot` is the counter's last value: since boot, or since it was last cleared. `rebased`
    says that it went down in between, so that `count` is a lower bound.
    """

    count: int
    since_boot: int
    rebased: bool
    seconds: float


def restarts(window: Window) -> Mapping[str, RestartCount]:
    """By unit name; units whose counter was never read are not in it."""
    return window.keep("restarts", lambda: restarts_in(window.columns(Unit, FIELDS)))


def restarts_in(pieces: Iterable[Columns]) -> dict[str, RestartCount]:
    """The same of columns that come in pieces.

    >>> def unit(restarts, start):
    ...     return Unit("a.service", "loaded", "activating", "auto-restart", None, restarts,
    ...                 None, None, start, None, None, None, None, None, "")
    >>> readings = [(3, 10), (5, 20), (0, 30), (2, 40)]
    >>> read = [Batch(t, t, (unit(*r),)) for t, r in enumerate(readings)]
    >>> restarts_in([columns_of(read, Unit, FIELDS)])["a.service"]
    RestartCount(count=4, since_boot=2, rebased=True, seconds=3.0)
    """
    found: dict[str, RestartCount] = {}
    last: dict[str, tuple[float, float]] = {}
    began: dict[str, float] = {}
    for piece in pieces:
        counters, starts = (piece.values[name] for name in FIELDS)
        known = ~np.isnan(counters)
        for row in np.flatnonzero(known.any(axis=1)).tolist():
            name = str(piece.things[row][0])
            mono = piece.mono[known[row]]
            before = found.get(name, RestartCount(0, 0, False, 0.0))
            counter, start = counters[row][known[row]], starts[row][known[row]]
            earlier = last.get(name, (float(counter[0]), float(start[0])))
            moved = np.diff(counter, prepend=earlier[0])
            same = np.diff(start, prepend=earlier[1]) == 0  # false where it is not known
            found[name] = RestartCount(
                count=before.count + int(moved[(moved > 0) & ~same].sum()),
                since_boot=int(counter[-1]),
                rebased=before.rebased or bool((moved < 0).any()),
                seconds=float(mono[-1]) - began.setdefault(name, float(mono[0])),
            )
            last[name] = float(counter[-1]), float(start[-1])
    return found
