"""How often a node is judged and read, for its metrics and for its condition. Imports nothing."""

from __future__ import annotations

from typing import NamedTuple

#: How much is judged.
JUDGED_S = 300.0
#: A window with a smaller part of `JUDGED_S` is of a recording that has just begun.
_WHOLE = 0.9
#: A reading that is older is not fresh, and a recorder's status that is older could not be written.
FRESH_S = 30.0


class Pace(NamedTuple):
    """How often, and after how long what was read is too old (seconds).

    After `idle_s` without a scrape nothing is refreshed until the next one.
    """

    refresh_s: float = 15.0
    judge_s: float = 60.0
    calm_s: float = JUDGED_S  # as long as what is judged, so that no second is left out
    fresh_s: float = FRESH_S
    stale_s: float = 60.0
    idle_s: float = 600.0

    def verdict_lasts_s(self, problem: bool, window_s: float) -> float:
        """How long a verdict stands. Judging costs more than all else here, and what may not wait
        raises an alarm."""
        whole = window_s >= _WHOLE * JUDGED_S
        return self.calm_s if whole and not problem else self.judge_s
