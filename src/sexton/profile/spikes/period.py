"""A load that comes back at regular intervals: a cron job, a scraper, a housekeeping loop.

Looked for in the autocorrelation of a core's seconds. It must come back at least five times, with
a peak at its interval and at twice that: noise has the one, rarely both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sexton.model.flame import Floats

#: An hour of a core tells its period.
LOOKED_AT = 3600
_CYCLES = 5
_SHORTEST = 3
#: How strong the peak must be, and how far above the valley before it.
_PEAK = 0.4
_ABOVE_VALLEY = 0.3
_AS_STRONG = 0.7


class Period(NamedTuple):
    """`seconds` between two, and how strongly the load repeats (autocorrelation, up to 1)."""

    seconds: float
    strength: float


def find_period(rest: Floats) -> Period | None:
    """The interval at which what stands out of the level comes back, if it does."""
    rest = rest[:LOOKED_AT]
    number = len(rest)
    longest = number // _CYCLES
    if longest < _SHORTEST:
        return None
    # Blurred: an interval of 12.5 s is now 12, now 13 whole ones.
    blurred = np.convolve(rest, (0.25, 0.5, 0.25), mode="same")
    repeats = _autocorrelation(blurred, min(number - 1, _CYCLES * longest))
    if repeats is None:
        return None
    smooth = np.maximum(repeats[:-1], repeats[1:])
    found = [lag for lag in _peaks(smooth, longest) if _comes_back(repeats, smooth, lag)]
    if not found:
        return None
    # Twice the interval is an interval too, and by chance the stronger one.
    strongest = max(float(smooth[lag]) for lag in found)
    lag = next(lag for lag in found if smooth[lag] >= _AS_STRONG * strongest)
    return Period(_refined(repeats, lag), float(smooth[lag]))


def _comes_back(repeats: Floats, smooth: Floats, lag: int) -> bool:
    """Is it a peak above the valley before it, and at its multiples too?"""
    if smooth[lag] < 4 / np.sqrt(len(repeats)):
        return False
    if smooth[lag] - repeats[1:lag].min() < _ABOVE_VALLEY:
        return False
    exact = _refined(repeats, lag)
    return min(_near(repeats, times * exact) for times in (2, 3)) >= 0.5 * float(smooth[lag])


def seasonal(z: Floats, period: Period) -> Floats:
    """The least that was usual at the same position of the periods around, a second's slack."""
    number = len(z)
    padded = np.pad(z, 1, mode="edge")
    slack = np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:])
    shifted = []
    for times in (-4, -3, -2, -1, 1, 2, 3, 4):
        at = np.arange(number) + round(times * period.seconds)
        inside = (at >= 0) & (at < number)
        shifted.append(np.where(inside, slack[np.clip(at, 0, number - 1)], np.nan))
    # At least two are inside: there are five cycles.
    return np.asarray(np.nanmedian(np.stack(shifted), axis=0), np.float64)


def _autocorrelation(rest: Floats, lags: int) -> Floats | None:
    centred = rest - rest.mean()
    square = float(np.einsum("i,i", centred, centred))
    if square <= 1e-12:
        return None
    size = 1 << (2 * len(rest) - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    raw = np.fft.irfft(power, size)[: lags + 1]
    # Long lags have fewer pairs: give each its own number of them.
    return np.asarray(raw / square * len(rest) / (len(rest) - np.arange(lags + 1)), np.float64)


def _peaks(smooth: Floats, longest: int) -> list[int]:
    """Local maxima, the shortest first."""
    lags = np.arange(_SHORTEST, min(longest, len(smooth) - 2) + 1)
    here = smooth[lags]
    peak = (here >= smooth[lags - 1]) & (here >= smooth[lags + 1]) & (here >= _PEAK)
    return [int(lag) for lag in lags[peak]]


def _refined(repeats: Floats, lag: int) -> float:
    """The interval to a fraction of a second, from the peaks at its multiples."""
    candidates = np.arange(lag - 1.0, lag + 2.01, 0.05)
    times = np.arange(1, _CYCLES)
    heights = [
        np.mean([repeats[round(k * each)] for k in times if round(k * each) < len(repeats)])
        for each in candidates
    ]
    best = np.flatnonzero(np.isclose(heights, max(heights)))
    return float(candidates[best].mean())


def _near(repeats: Floats, lag: float) -> float:
    at = round(lag)
    around = repeats[max(0, at - 1) : at + 2]
    return float(around.max()) if len(around) else 0.0
