"""When to try again: exponential back-off with full jitter, as 5,000 nodes lose one API server."""

from __future__ import annotations

import random

#: The first pause is up to this long, and each one up to twice the one before.
FIRST_S, MOST_S = 1.0, 300.0
#: Never sooner than this, however small the random number.
_LEAST_S = 0.25
#: What a server may ask for. A larger Retry-After is a mistake, or hostile.
MOST_ASKED_S = 600.0


class BackOff:
    """Counts failures in a row, and says how long to wait after each."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()
        self.failures = 0

    def failed(self, asked_s: float | None = None, *, slow: bool = False) -> float:
        """Seconds until the next attempt.

        `asked_s` is the server's Retry-After: the least, with jitter on top, because it says the
        same to everybody. `slow`: what failed needs somebody to change something.
        """
        self.failures += 1
        most = min(MOST_S, FIRST_S * 2.0 ** min(self.failures - 1, 16))
        if slow:
            return self._chance.uniform(MOST_S / 2, MOST_S)
        wait_s = max(_LEAST_S, self._chance.uniform(0.0, most))
        if asked_s is not None:
            wait_s += min(max(asked_s, 0.0), MOST_ASKED_S)
        return wait_s

    def succeeded(self) -> None:
        self.failures = 0
