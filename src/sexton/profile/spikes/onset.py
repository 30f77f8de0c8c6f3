"""Where in its first and last second a spike began and ended, to 20 ms.

Each fiftieth of a second is weighed: how much likelier are its samples at the spike's rate than
at the usual one? The onset is the fiftieth from which on the sum of these weights is largest: the
most likely place of one change from one rate to the other.
"""

from __future__ import annotations

import numpy as np

from sexton.model.flame import Floats

#: No rate is taken to be certain: a tick may fall into the fiftieth beside its own.
_DOUBT = 0.02


def weights(hits: Floats, trials: Floats, usual: float, now: float) -> Floats:
    """Log-likelihood of the spike's share `now` over the usual one, per cell."""
    low, high = (float(np.clip(each, _DOUBT, 1 - _DOUBT)) for each in (usual, now))
    hits = np.minimum(hits, trials)
    up, down = np.log(high / low), np.log((1 - high) / (1 - low))
    return np.asarray(hits * up + (trials - hits) * down, np.float64)


def rise(weight: Floats) -> int:
    """The cell from which on it is the spike (given that it lasts to the end of `weight`)."""
    if not len(weight):
        return 0
    # Backwards, so that of places as likely (nothing was sampled between them) it is the last.
    return len(weight) - 1 - int(np.argmax(np.cumsum(weight[::-1])))


def fall(weight: Floats) -> int:
    """One past the last cell of the spike (given that `weight` begins within it)."""
    if not len(weight):
        return 0
    return int(np.argmax(np.cumsum(weight))) + 1


def stretch(weight: Floats) -> tuple[int, int]:
    """The stretch with the largest sum: where it is the spike, given neither end of it."""
    sums = np.append(0.0, np.cumsum(weight))
    lowest = np.minimum.accumulate(sums)
    end = int(np.argmax(sums - lowest))
    # The last place of the lowest sum before it.
    start = end - int(np.argmin(sums[: end + 1][::-1]))
    return start, end
