"""The baseline of a core, and how far each second is above it.

Shares are compared as angles, asin√share (Anscombe): the sampling variance is then 1/(4n) whether a
core is idle or full, and nothing can exceed a quarter circle, so that a core that is always near
100 % has no spikes.

- *Level*: the median of the whole span; beyond an hour, a running median of an hour (so a daily
  rise and fall is not a spike); for a periodic load, no lower than at the same position of other
  periods.
- *Spread*: from the upper quantiles of the core's own seconds (0.75, and 0.9 if there are enough),
  never below the sampling noise.
- *Length*: in long captures, stretches of five seconds and of a minute are also compared with such
  stretches: a core that is half busy and then fully busy for ten minutes stands out in no single
  second.
- *Certainty*: the spread is estimated from seconds that are not independent; p is Student's, with
  degrees of freedom reduced by their autocorrelation.

A periodic load (a cron job, a scraper, a housekeeping loop) is found in the autocorrelation of a
core's seconds. It must recur at least five times, with a peak at its interval and at twice that:
noise has the one, rarely both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from sexton.model.profile import I64, Floats
from sexton.profile.significance import t_tail, unbiased_lag

#: Fewer seconds of a core are not enough for a baseline.
LEAST_SECONDS = 8
#: With this many seconds, nine tenths can be assumed to be calm.
_MANY_SECONDS = 60
#: With fewer seconds, a stall may be a third of the capture.
_FEW_SECONDS = 30
_BLOCK = 60
_BLOCKS_AROUND = 61
_LOCAL_FROM = 3600
#: Quantiles of the standard normal distribution.
_NORMAL = {0.6: 0.253347, 0.75: 0.674490, 0.9: 1.281552}
#: Efficiency of these quantiles as an estimate of the spread, where the standard deviation has 1
#: (simulated: 0.24 at 60 to 600 independent seconds, 0.16 to 0.28 below).
_EFFICIENCY = 0.24
#: Tails of real loads are heavier than normal in captures of any length. Where the spread is that
#: of the load and not of sampling, a short capture does not show how heavy.
_MOST_DF = 30.0
_UNKNOWN_TAIL_DF = 12.0
#: The prior is a steady core, with the weight of this many degrees of freedom: a spread estimated
#: from few seconds is shrunk towards the sampling noise (Smyth 2004).
_PRIOR_DF = 3.0
_TAIL_FROM = 1800
_TAIL_PART = 360
_ENOUGH_SECONDS = 5000
#: Stretches longer than a second, tested where there are enough of them to compare.
_LENGTHS = (5, 60)
_LEAST_STRETCHES = 200
#: Ratio of the 0.99 to the 0.75 quantile, by degrees of freedom of Student's t.
_TAILS = (
    (3.53, 60.0),
    (3.6, 30.0),
    (3.95, 10.0),
    (4.38, 6.0),
    (5.06, 4.0),
    (5.94, 3.0),
    (8.53, 2.0),
)
#: A second is a candidate below this p (one-sided, both signals) and above this extra share.
CANDIDATE_P = 0.01
#: Below this t no p is small enough, whatever the degrees of freedom.
_CANDIDATE_T = 2.5
CANDIDATE_EXTRA = 0.1
QUARTER = np.pi / 2

#: Shares are kept for every core-second: single precision is enough.
Shares: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One signal of one core: the normal share per second, and the excess over it.

    `near` are the seconds with a p, `p` their values; all others have p = 1.
    """

    usual: Shares
    extra: Shares
    near: I64
    p: Floats
    df: float
    period: Period | None
    #: The largest possible t here: could any spike have been found?
    best_t: float

    def p_values(self) -> Floats:
        """A p per second, 1 for those not in `near`."""
        result = np.ones(len(self.usual))
        result[self.near] = self.p
        return result


def angle(count: npt.ArrayLike, trials: npt.ArrayLike) -> Floats:
    """asin√share with Anscombe's correction for small counts."""
    share = (np.asarray(count) + 0.375) / (np.asarray(trials) + 0.75)
    return np.asarray(np.arcsin(np.sqrt(np.clip(share, 0, 1))), np.float64)


def share(level: npt.ArrayLike) -> Floats:
    """The share of an angle."""
    return np.asarray(np.sin(np.clip(level, 0, QUARTER)) ** 2, np.float64)


def score(count: Floats, trials: Floats) -> Scored | None:
    """`None` if the core has too few seconds."""
    seen = np.flatnonzero(trials)
    if len(seen) < LEAST_SECONDS:
        return None
    everywhere = len(seen) == len(trials)
    tries = trials if everywhere else np.maximum(trials, 1)
    z = angle(count, tries)
    sampling = 0.25 / tries
    # A few thousand seconds give the quantiles as well as all of twelve hours.
    some = seen[:: max(1, len(seen) // _ENOUGH_SECONDS)]
    floor, middle = (float(np.median(array[some])) for array in (sampling, z))
    if not everywhere:
        z[trials == 0] = middle
    level = _level(z, middle)
    rest = z - level
    spread = _spread(rest[some], floor)
    period = find_period(np.minimum(rest[:PERIOD_SECONDS], 8 * spread))
    if period is not None:
        # The level is now a maximum of neighbours, which must not make the spread smaller.
        quarter = float(np.quantile(rest[some], 0.75)) / _NORMAL[0.75]
        level = np.maximum(level, seasonal(z, period))
        rest = z - level
        spread = max(quarter, _spread(rest[some], floor))
    usual = share(level)
    extra = count / tries - usual
    if not everywhere:
        extra[trials == 0] = 0
    sampled = rest if everywhere else rest[seen]
    worth = degrees(sampled, spread)
    spread = np.sqrt((worth * spread**2 + _PRIOR_DF * floor) / (worth + _PRIOR_DF))
    over = spread**2 - floor
    tail = _tail(sampled, spread, floor)
    df = min(worth + _PRIOR_DF, tail)
    # The level is an estimate too.
    scale = np.sqrt((over + sampling) * (1 + 1 / df))
    t = rest / scale
    p = np.ones(len(z))
    near = np.flatnonzero((t > _CANDIDATE_T) & (extra >= CANDIDATE_EXTRA))
    t[near] = np.minimum(t[near], _by_odds(z[near], level[near], tries[near], (spread, floor)))
    p[near] = t_tail(t[near], df)
    lengths = [length for length in _LENGTHS if len(seen) >= _LEAST_STRETCHES * length]
    for length in lengths:
        for offset in (0, length // 2):
            _stretches((p, rest, extra), _Noise(floor, tail), length, offset)
    near = np.flatnonzero(p < 1)
    best = float((QUARTER - level.min()) / scale[seen].min())
    return Scored(
        usual.astype(np.float32),
        extra.astype(np.float32),
        near,
        np.minimum(1.0, p[near] * (1 + len(lengths))),
        df,
        period,
        best,
    )


def _by_odds(z: Floats, level: Floats, trials: Floats, spreads: tuple[float, float]) -> Floats:
    """How far seconds stand out if the load varies by factors rather than by amounts.

    A core that is 3 % busy, sometimes 1 %, sometimes 10 %, also fits odds that double and halve,
    and then 40 % is not far. A few minutes do not show which is right: both tests must
    agree. `spreads` are those of the angle, of the load and of sampling alone.
    """
    own, sampling = (
        (_odds(level + 1.28 * spread) - _odds(level)) / 1.28
        for spread in (spreads[0], np.sqrt(spreads[1]))
    )
    over = np.maximum(own**2 - sampling**2, 0)
    hits = share(z) * trials
    drawn = 1 / (hits + 0.5) + 1 / (trials - hits + 0.5)
    return np.asarray((_odds(z) - _odds(level)) / np.sqrt(over + drawn), np.float64)


def _odds(z: Floats) -> Floats:
    """The logarithm of the odds of the share that an angle is."""
    return np.asarray(2 * np.log(np.tan(np.clip(z, 0.03, QUARTER - 0.03))), np.float64)


class _Noise(NamedTuple):
    """Of single seconds: the sampling variance, and the degrees of freedom their tail permits."""

    sampling: float
    tail: float


def _stretches(
    seconds: tuple[Floats, Floats, Floats], noise: _Noise, length: int, offset: int
) -> None:
    """Lower `p` where whole stretches stand out from other stretches of that length."""
    p, rest, extra = seconds
    number = (len(rest) - offset) // length
    inside = slice(offset, offset + number * length)
    means = rest[inside].reshape(number, length).mean(axis=1)
    spread = _spread(means, noise.sampling / length)
    # The tail of a mean is no heavier than that of its parts.
    df = min(degrees(means, spread), noise.tail)
    t = means / (spread * np.sqrt(1 + 1 / df))
    more = extra[inside].reshape(number, length)
    high = np.flatnonzero((t > _CANDIDATE_T) & (more.mean(axis=1) >= CANDIDATE_EXTRA))
    if not len(high):
        return
    where = (high[:, None] * length + np.arange(length)).ravel() + offset
    lower = np.repeat(t_tail(t[high], df), length)
    lower[extra[where] < CANDIDATE_EXTRA] = 1
    p[where] = np.minimum(p[where], lower)


def degrees(rest: Floats, spread: float) -> float:
    """Degrees of freedom of a spread estimated from these seconds, in time order."""
    # Outliers are not part of the normal variation.
    inside = np.abs(rest) < 4 * spread
    calm = np.where(inside, rest, 0.0)
    calm -= np.where(inside, calm.sum() / max(1, np.count_nonzero(inside)), 0.0)
    # einsum and not @: a threaded BLAS would wait for busy cores.
    square = float(np.einsum("i,i", calm, calm))
    lag = float(np.einsum("i,i", calm[1:], calm[:-1])) / square if square > 0 else 0.0
    lag = float(unbiased_lag(np.asarray(lag), len(rest)))
    # Squares, which determine a spread, decorrelate faster than the load.
    worth = len(rest) * (1 - lag**2) / (1 + lag**2)
    return float(np.clip(_EFFICIENCY * worth, 1.0, _TAILS[0][1]))


def _spread(rest: Floats, sampling: float) -> float:
    """The normal spread of seconds above the level."""
    parts = [0.75, 0.9]
    if len(rest) < _MANY_SECONDS:
        parts = [0.75 if len(rest) >= _FEW_SECONDS else 0.6]
    found = np.quantile(rest, [0.25, *parts])
    wide = [upper / _NORMAL[part] for part, upper in zip(parts, found[1:], strict=True)]
    if len(rest) < _MANY_SECONDS:
        # Too few to estimate the upper side alone.
        wide.append(-found[0] / _NORMAL[0.75])
    return float(max(np.sqrt(sampling), *wide))


def _tail(rest: Floats, spread: float, sampling: float) -> float:
    """The largest number of degrees of freedom consistent with the tail."""
    if len(rest) < _TAIL_FROM:
        over = max(0.0, spread**2 - sampling)
        return _UNKNOWN_TAIL_DF + (_MOST_DF - _UNKNOWN_TAIL_DF) * sampling / (sampling + over)
    # Part by part: one long stall affects few of them, a heavy tail most.
    parts = max(1, len(rest) // _TAIL_PART)
    size = len(rest) // parts
    far = np.quantile(rest[: parts * size].reshape(parts, size), 0.99, axis=1)
    quarter = max(_NORMAL[0.75] * spread, _NORMAL[0.75] * np.sqrt(sampling))
    distances, degrees_of = zip(*_TAILS, strict=True)
    return float(np.interp(np.median(far) / quarter, distances, degrees_of))


def _level(z: Floats, middle: float) -> Floats:
    if len(z) <= _LOCAL_FROM:
        return np.full(len(z), middle)
    blocks = len(z) // _BLOCK
    medians = np.median(z[: blocks * _BLOCK].reshape(blocks, _BLOCK), axis=1)
    aside = _BLOCKS_AROUND // 2
    around = sliding_window_view(np.pad(medians, aside, mode="symmetric"), _BLOCKS_AROUND)
    running = np.median(around, axis=1)
    # Where the level steps, seconds on both sides are compared with the higher level.
    high = sliding_window_view(np.pad(running, 1, mode="edge"), 3).max(axis=1)
    return np.repeat(np.append(high, high[-1]), _BLOCK)[: len(z)]


#: Seconds searched for a period.
PERIOD_SECONDS = 3600
_CYCLES = 5
_SHORTEST = 3
#: How strong the peak must be, and how far above the valley before it.
_PEAK = 0.4
_ABOVE_VALLEY = 0.3
_AS_STRONG = 0.7


class Period(NamedTuple):
    """The interval in seconds, and its autocorrelation (up to 1)."""

    seconds: float
    strength: float


def find_period(rest: Floats) -> Period | None:
    """The interval at which the excess over the level recurs, if it does."""
    rest = rest[:PERIOD_SECONDS]
    number = len(rest)
    longest = number // _CYCLES
    if longest < _SHORTEST:
        return None
    # Blurred: an interval of 12.5 s is sometimes 12, sometimes 13 whole seconds.
    blurred = np.convolve(rest, (0.25, 0.5, 0.25), mode="same")
    repeats = _autocorrelation(blurred, min(number - 1, _CYCLES * longest))
    if repeats is None:
        return None
    smooth = np.maximum(repeats[:-1], repeats[1:])
    found = [lag for lag in _peaks(smooth, longest) if _recurs(repeats, smooth, lag)]
    if not found:
        return None
    # A multiple of the interval also matches, sometimes more strongly by chance.
    strongest = max(float(smooth[lag]) for lag in found)
    lag = next(lag for lag in found if smooth[lag] >= _AS_STRONG * strongest)
    return Period(_refined(repeats, lag), float(smooth[lag]))


def _recurs(repeats: Floats, smooth: Floats, lag: int) -> bool:
    """Is it a peak above the valley before it, and at its multiples too?"""
    if smooth[lag] < 4 / np.sqrt(len(repeats)):
        return False
    if smooth[lag] - repeats[1:lag].min() < _ABOVE_VALLEY:
        return False
    exact = _refined(repeats, lag)
    return min(_near(repeats, times * exact) for times in (2, 3)) >= 0.5 * float(smooth[lag])


def seasonal(z: Floats, period: Period) -> Floats:
    """The median at the same position of the neighbouring periods, with a second of slack."""
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
    # Long lags have fewer pairs: normalise each by its number of pairs.
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
        np.mean(
            [repeats[round(k * candidate)] for k in times if round(k * candidate) < len(repeats)]
        )
        for candidate in candidates
    ]
    best = np.flatnonzero(np.isclose(heights, max(heights)))
    return float(candidates[best].mean())


def _near(repeats: Floats, lag: float) -> float:
    at = round(lag)
    around = repeats[max(0, at - 1) : at + 2]
    return float(around.max()) if len(around) else 0.0
