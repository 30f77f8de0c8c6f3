"""When the probe watches, rests or stays away: decided by what it costs, without touching it.

Over 0.5 % of any core's time in a sampled second it watches one second in ten; if that, averaged
over the ten, is still over 0.5 %, it stays off until a trigger. A trigger turns it on whatever it
costs; when the alarm is over it is judged anew. Three cheap seconds in a row, at less than half of
the limit, let it watch all the time again.

While it watches one second in ten, a wait that is under way when the second ends keeps it watching
until the wait ends: else no wait of more than a second could ever be seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

ON, PART, OFF = "on", "1 s in 10", "off"
LIMIT_PERCENT = 0.5
CYCLE_S = 10.0
#: The part of the time in which the kernel measures, while the probe is on.
SAMPLED = 1 / CYCLE_S
#: A wait of that length is worth going on for, but not forever.
WORTH_STAYING_S = 0.25
LONGEST_STAY_S = 30.0
_CHEAP_SECONDS = 3
#: A reading a little early is on time.
_SLACK_S = 0.2


class Charge(NamedTuple):
    """What a sampled second cost the core that paid most, in per cent of that second."""

    core: int
    percent: float
    seconds: float


class Orders(NamedTuple):
    """What to do until the next reading: watch? and have the kernel measure that second?"""

    watch: bool
    sample: bool


@dataclass(slots=True)
class Duty:
    """The state between readings; times are monotonic seconds."""

    mode: str = ON
    why: str = ""
    last: Charge | None = None
    _cheap: int = 0
    _sample_from: float = 0.0
    _rests_until: float = 0.0
    _watching_since: float | None = None
    _alarmed: bool = False

    @property
    def average_percent(self) -> float | None:
        """The last charge, spread over the time in which the probe rests."""
        if self.last is None:
            return None
        return self.last.percent if self.mode == ON else _spread(self.last)

    def charge(self, charge: Charge, now: float) -> None:
        """Judge a sampled second."""
        self.last = charge
        if self._alarmed:
            return
        if self.mode == ON and charge.percent > LIMIT_PERCENT:
            self._become(PART, f"{_cost(charge.percent, charge.core)} in a sampled second")
            self._rest(now)
        elif self.mode == PART:
            spread = _spread(charge)
            self._cheap = self._cheap + 1 if charge.percent < LIMIT_PERCENT / 2 else 0
            if spread > LIMIT_PERCENT:
                self._become(OFF, f"{_cost(spread, charge.core)} even at 1 s in 10")
            elif self._cheap >= _CHEAP_SECONDS:
                self._become(ON, "")

    def orders(self, now: float, alarm: bool, pending_s: float = 0.0) -> Orders:
        """What to do from `now` on; `pending_s` is the longest wait that is under way."""
        if alarm != self._alarmed:
            self._alarmed = alarm
            self._become(ON, "")
            self._sample_from = now  # so that it is judged at once when the alarm is over
        if self.mode == OFF:
            return Orders(False, False)
        if self.mode == ON:
            sample = now + _SLACK_S >= self._sample_from
            if sample:
                self._sample_from = now + CYCLE_S
            return Orders(True, sample)
        since = self._watching_since
        if since is None:
            if now + _SLACK_S < self._rests_until:
                return Orders(False, False)
            self._watching_since = now
            return Orders(True, True)
        if pending_s >= WORTH_STAYING_S and now - since < LONGEST_STAY_S:
            return Orders(True, True)
        self._rest(now)
        return Orders(False, False)

    def _rest(self, now: float) -> None:
        self._watching_since = None
        self._rests_until = now + CYCLE_S - 1

    def _become(self, mode: str, why: str) -> None:
        self.mode, self.why, self._cheap = mode, why, 0
        self._watching_since = None


def _spread(charge: Charge) -> float:
    return charge.percent * charge.seconds / max(CYCLE_S, charge.seconds)


def _cost(percent: float, core: int) -> str:
    return f"{percent:.2f} % of core {core}, at most {LIMIT_PERCENT} % allowed,"
