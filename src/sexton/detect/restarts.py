"""How often each unit restarted while we looked, by rules that `NRestarts` needs.

`NRestarts` counts automatic restarts only, is cleared by ``systemctl reset-failed`` and by a manual
start after a stop, and so can go down. The rules:

- a decrease is a new baseline, never a negative step and never "everything since zero";
- a step counts only if the main process was started anew meanwhile (`main_start_us` moved), where
  that is known: a counter that moved without it belongs to a start that never came to be;
- a manual restart moves the start time and not the counter: it does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sexton.model.unit import Unit
from sexton.model.window import Batch


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


def restarts_in(batches: Sequence[Batch[Unit]]) -> dict[str, RestartCount]:
    """By unit name; units whose counter was never read are not in it.

    >>> def unit(restarts, start):
    ...     return Unit("a.service", "loaded", "activating", "auto-restart", None, restarts,
    ...                 None, None, start, None, None, None, None, None, "")
    >>> readings = [(3, 10), (5, 20), (0, 30), (2, 40)]
    >>> restarts_in([Batch(t, t, (unit(*r),)) for t, r in enumerate(readings)])["a.service"]
    RestartCount(count=4, since_boot=2, rebased=True, seconds=3)
    """
    found: dict[str, RestartCount] = {}
    before: dict[str, Unit] = {}
    began: dict[str, float] = {}
    for batch in batches:
        for unit in batch.rows:
            if unit.restarts is None:
                continue
            earlier = before.get(unit.name)
            known = found.get(unit.name)
            step, fell = _step(earlier, unit) if earlier else (0, False)
            found[unit.name] = RestartCount(
                count=(known.count if known else 0) + step,
                since_boot=unit.restarts,
                rebased=(known.rebased if known else False) or fell,
                seconds=batch.mono_s - began.setdefault(unit.name, batch.mono_s),
            )
            before[unit.name] = unit
    return found


def _step(earlier: Unit, later: Unit) -> tuple[int, bool]:
    """Restarts between two readings, and whether the counter was cleared."""
    if earlier.restarts is None or later.restarts is None:
        return 0, False
    if later.restarts < earlier.restarts:
        return 0, True
    known = earlier.main_start_us is not None and later.main_start_us is not None
    if known and earlier.main_start_us == later.main_start_us:
        return 0, False
    return later.restarts - earlier.restarts, False
