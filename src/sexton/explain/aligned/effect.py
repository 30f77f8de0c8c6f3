"""How large the difference is, in how many events it shows, and when it begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.explain.aligned.chance import Sizes
from sexton.model.aligned import F64

#: No spread is taken to be smaller than this part of the largest value seen: a signal that stood
#: still in every control window would otherwise be infinitely far from them.
_LEAST_SPREAD = 0.01
#: Of a normal distribution the median distance from its middle is so many times its spread.
_NORMAL = 1.4826
_CLEAR = 0.9
_SMOOTH = 3


#: What one tick of a clock, one count or one sample makes in a short window: a spread below it
#: would make a great deal of a single one.
_FINEST = {"% of a core": 1.0, "% of time": 0.1, "% of samples": 0.05, "/s": 0.2, "/min": 6.0}


class Effects(NamedTuple):
    """Per signal: medians, their distance in spreads, and the number of events clearly beyond
    their own controls. `usual` is the middle of each event's controls, (signals, events), NaN where
    that event does not count."""

    before: F64
    control: F64
    size: F64
    shown: npt.NDArray[np.intp]
    usual: F64


def effects_of(values: F64, units: Sequence[str], sizes: Sizes) -> Effects:
    """Of some signals' windows, (signals, windows)."""
    events = values[:, sizes.starts]
    usual = np.full(events.shape, np.nan)
    above = np.full(events.shape, np.nan)
    below = np.full(events.shape, np.nan)
    strays = np.full(values.shape, np.nan)
    controls = np.full(values.shape, np.nan)
    for at, part in enumerate(sizes.slices):
        mine = values[:, part][:, 1:]
        event = events[:, at, None]
        number = np.maximum(np.isfinite(mine).sum(axis=1), 1)
        usual[:, at] = np.where(np.isfinite(event[:, 0]), _medians(mine), np.nan)
        above[:, at] = (mine < event).sum(axis=1) / number
        below[:, at] = (mine > event).sum(axis=1) / number
        kept = np.isfinite(usual[:, at, None])
        strays[:, part][:, 1:] = np.where(kept, mine - usual[:, at, None], np.nan)
        controls[:, part][:, 1:] = np.where(kept, mine, np.nan)
    known = np.isfinite(usual)
    spread = _NORMAL * _medians(np.abs(strays))
    still = spread == 0  # mostly: then what moves at all tells how far it goes
    spread[still] = np.sqrt(_means(strays[still] ** 2))
    most = np.fmax.reduce(np.abs(values), axis=1)
    finest = np.array([_FINEST.get(unit, 0.0) for unit in units])
    spread = np.fmax(np.fmax(spread, _LEAST_SPREAD * most), finest)
    away = _medians(np.where(known, events - usual, np.nan))
    size = np.divide(away, spread, out=np.zeros(len(away)), where=(spread > 0) & np.isfinite(away))
    clear = np.where(size[:, None] >= 0, above, below) >= _CLEAR
    return Effects(
        _medians(np.where(known, events, np.nan)),
        _medians(controls),
        size,
        (clear & known).sum(axis=1),
        usual,
    )


def _medians(values: F64) -> F64:
    """By row, of what is known."""
    number = np.isfinite(values).sum(axis=1)
    ordered = np.sort(values, axis=1)  # NaN last
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    rows = np.arange(len(values))
    low, high = np.maximum(number - 1, 0) // 2, np.minimum(number // 2, values.shape[1] - 1)
    found: F64 = (ordered[rows, low] + ordered[rows, high]) / 2
    return np.where(number > 0, found, np.nan)


def _means(values: F64) -> F64:
    known = np.isfinite(values)
    found: F64 = np.where(known, values, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return found


def lead_of(onset: F64, usual: F64, size: float, lookback_s: float) -> float | None:
    """How long before the event it began to differ: the beginning of the stretch that stands out
    most over all events together, by at least half of its height. `None` where none stands out.

    `onset` is (events, bins), the oldest bin first; `size` says in which direction.

    >>> quiet, loud = np.zeros((1, 50)), np.ones((1, 10))
    >>> lead_of(np.hstack([quiet, loud]), np.zeros(1), 9.0, 60.0)
    10.0
    """
    strays = (onset - usual[:, None]) * np.sign(size)
    middle = _medians(strays.T)
    told = np.flatnonzero(np.isfinite(middle))
    if not size or not len(told):
        return None
    smooth = min(_SMOOTH, len(told))
    height = float(np.convolve(middle[told], np.full(smooth, 1 / smooth), "valid").max())
    if height <= 0:
        return None
    start = _loudest(np.nan_to_num(middle - height / 2))
    bins = onset.shape[1]
    return float(round((bins - max(start, int(told[0]))) * lookback_s / bins, 3))


def _loudest(weights: F64) -> int:
    """Where the stretch with the largest sum begins."""
    best, best_start, total, start = -np.inf, 0, 0.0, 0
    for at, weight in enumerate(weights.tolist()):
        if total <= 0:
            total, start = 0.0, at
        total += weight
        if total > best:
            best, best_start = total, start
    return best_start
