"""What is usual for a core, and how far a second stands out of it.

Shares are compared as angles, asin√share (Anscombe's): there the sampling variance is 1/(4n)
whether a core is idle or full, and nothing can stand out further than a quarter circle, so that a
core that is always near 100 % has no spikes.

- *Level*: the median of the whole span, or, beyond an hour, a running median of an hour (so a
  day's rise and fall is no spike), and where the core's load is periodic no lower than what it was
  at the same position of other periods.
- *Spread*: from the upper quantiles of the core's own seconds (three quarters, and nine tenths
  where there are enough), never less than sampling gives.
- *Length*: in long captures stretches of five seconds and of a minute are held against such
  stretches too: a core that is half busy and burns for ten minutes stands out by no single second.
- *Certainty*: the spread is an estimate from seconds that are not independent; the p is Student's
  with as many degrees of freedom as the seconds are worth after their autocorrelation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import sliding_window_view

from sexton.model.flame import Floats
from sexton.model.profile import I64
from sexton.profile.significance import t_tail, unbiased_lag
from sexton.profile.spikes.period import LOOKED_AT, Period, find_period, seasonal

#: Fewer seconds of a core than this are no baseline.
LEAST_SECONDS = 8
#: From here on nine tenths of the seconds can be trusted to be calm.
_MANY_SECONDS = 60
#: Below this a stall may well be a third of all there is.
_FEW_SECONDS = 30
_BLOCK = 60
_BLOCKS_AROUND = 61
_LOCAL_FROM = 3600
#: Quantiles of the standard normal distribution.
_NORMAL = {0.6: 0.253347, 0.75: 0.674490, 0.9: 1.281552}
#: What such quantiles are worth as an estimate of the spread, against the standard deviation's 1
#: (simulated: 0.24 at 60 to 600 independent seconds, 0.16 to 0.28 below).
_EFFICIENCY = 0.24
#: Tails of real loads are heavier than normal ones however long one looks, and where the spread is
#: the load's own and not sampling's, a short look does not tell how heavy.
_MOST_DF = 30.0
_UNTOLD_DF = 12.0
#: Before anything is seen of it, a core is taken to be steady, with the weight of so many degrees:
#: a spread told by few seconds is drawn towards that of sampling (Smyth 2004).
_PRIOR_DF = 3.0
_TAIL_FROM = 1800
_TAIL_PART = 360
_ENOUGH_SECONDS = 5000
#: Longer than a second, a stretch stands out by less; where there are so many of them to compare.
_LENGTHS = (5, 60)
_LEAST_STRETCHES = 200
#: How far out the hundredth second is against the fourth, by Student's degrees of freedom.
_TAILS = (
    (3.53, 60.0),
    (3.6, 30.0),
    (3.95, 10.0),
    (4.38, 6.0),
    (5.06, 4.0),
    (5.94, 3.0),
    (8.53, 2.0),
)
#: A second is a candidate from here on: p (one-sided, both signals) and extra share of the core.
CANDIDATE_P = 0.01
#: Nearer than this no p is small enough, whatever the degrees of freedom.
_CANDIDATE_T = 2.5
CANDIDATE_EXTRA = 0.1
QUARTER = np.pi / 2

#: Shares are kept for every core-second: half the memory is enough for them.
Shares: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """One signal of one core: the usual share per second, and the actual one above it.

    `near` are the seconds worth a p, `p` theirs; all others are dull.
    """

    usual: Shares
    extra: Shares
    near: I64
    p: Floats
    df: float
    period: Period | None
    #: The furthest that anything could have stood out here: whether there was a chance to find it.
    best_t: float

    def each_p(self) -> Floats:
        """A p per second, 1 where it is dull."""
        each = np.ones(len(self.usual))
        each[self.near] = self.p
        return each


def angle(count: npt.ArrayLike, trials: npt.ArrayLike) -> Floats:
    """asin√share with Anscombe's correction for small counts."""
    share = (np.asarray(count) + 0.375) / (np.asarray(trials) + 0.75)
    return np.asarray(np.arcsin(np.sqrt(np.clip(share, 0, 1))), np.float64)


def share(level: npt.ArrayLike) -> Floats:
    """Back from the angle."""
    return np.asarray(np.sin(np.clip(level, 0, QUARTER)) ** 2, np.float64)


def score(count: Floats, trials: Floats) -> Scored | None:
    """`None` where the core was seen for too few seconds."""
    seen = np.flatnonzero(trials)
    if len(seen) < LEAST_SECONDS:
        return None
    everywhere = len(seen) == len(trials)
    tries = trials if everywhere else np.maximum(trials, 1)
    z = angle(count, tries)
    sampling = 0.25 / tries
    # A few thousand seconds tell a quantile as well as all of twelve hours.
    some = seen[:: max(1, len(seen) // _ENOUGH_SECONDS)]
    floor, middle = (float(np.median(each[some])) for each in (sampling, z))
    if not everywhere:
        z[trials == 0] = middle
    level = _level(z, middle)
    rest = z - level
    spread = _spread(rest[some], floor)
    period = find_period(np.minimum(rest[:LOOKED_AT], 8 * spread))
    if period is not None:
        # The level is now the highest of neighbours: what is left below it is no smaller spread.
        quarter = float(np.quantile(rest[some], 0.75)) / _NORMAL[0.75]
        level = np.maximum(level, seasonal(z, period))
        rest = z - level
        spread = max(quarter, _spread(rest[some], floor))
    usual = share(level)
    extra = count / tries - usual
    if not everywhere:
        extra[trials == 0] = 0
    told = rest if everywhere else rest[seen]
    worth = degrees(told, spread)
    spread = np.sqrt((worth * spread**2 + _PRIOR_DF * floor) / (worth + _PRIOR_DF))
    over = spread**2 - floor
    tail = _tail(told, spread, floor)
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
    """How far seconds stand out when the load wanders by factors and not by amounts.

    A core that is 3 % busy, now 1 %, now 10 %, is as well described by odds that double and halve,
    and then 40 % is not far. Which of the two it is, a few minutes do not tell: both must hold.
    `spreads` are the angle's, of the load and of sampling alone.
    """
    own, sampling = (
        (_odds(level + 1.28 * each) - _odds(level)) / 1.28
        for each in (spreads[0], np.sqrt(spreads[1]))
    )
    over = np.maximum(own**2 - sampling**2, 0)
    hits = share(z) * trials
    drawn = 1 / (hits + 0.5) + 1 / (trials - hits + 0.5)
    return np.asarray((_odds(z) - _odds(level)) / np.sqrt(over + drawn), np.float64)


def _odds(z: Floats) -> Floats:
    """The logarithm of the odds of the share that an angle is."""
    return np.asarray(2 * np.log(np.tan(np.clip(z, 0.03, QUARTER - 0.03))), np.float64)


class _Noise(NamedTuple):
    """Of single seconds: the sampling variance, and the degrees of freedom their tail allows."""

    sampling: float
    tail: float


def _stretches(
    seconds: tuple[Floats, Floats, Floats], noise: _Noise, length: int, offset: int
) -> None:
    """Lower `p` where whole stretches stand out of what stretches of that length usually are."""
    p, rest, extra = seconds
    number = (len(rest) - offset) // length
    inside = slice(offset, offset + number * length)
    means = rest[inside].reshape(number, length).mean(axis=1)
    spread = _spread(means, noise.sampling / length)
    # A mean's tail is no heavier than that of what it is made of.
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
    """Degrees of freedom of a spread told by these seconds, in the order of time."""
    # What stands out is no part of how the load usually wanders.
    inside = np.abs(rest) < 4 * spread
    calm = np.where(inside, rest, 0.0)
    calm -= np.where(inside, calm.sum() / max(1, np.count_nonzero(inside)), 0.0)
    # einsum and not @: a BLAS with threads of its own waits for busy cores.
    square = float(np.einsum("i,i", calm, calm))
    lag = float(np.einsum("i,i", calm[1:], calm[:-1])) / square if square > 0 else 0.0
    lag = float(unbiased_lag(np.asarray(lag), len(rest)))
    # Squares, which a spread is made of, forget faster than the load itself.
    worth = len(rest) * (1 - lag**2) / (1 + lag**2)
    return float(np.clip(_EFFICIENCY * worth, 1.0, _TAILS[0][1]))


def _spread(rest: Floats, sampling: float) -> float:
    """How far above the level a second usually is."""
    parts = [0.75, 0.9]
    if len(rest) < _MANY_SECONDS:
        parts = [0.75 if len(rest) >= _FEW_SECONDS else 0.6]
    found = np.quantile(rest, [0.25, *parts])
    wide = [upper / _NORMAL[part] for part, upper in zip(parts, found[1:], strict=True)]
    if len(rest) < _MANY_SECONDS:
        # Too few to tell the upper side on its own.
        wide.append(-found[0] / _NORMAL[0.75])
    return float(max(np.sqrt(sampling), *wide))


def _tail(rest: Floats, spread: float, sampling: float) -> float:
    """The most degrees of freedom that the shape of the tail allows."""
    if len(rest) < _TAIL_FROM:
        over = max(0.0, spread**2 - sampling)
        return _UNTOLD_DF + (_MOST_DF - _UNTOLD_DF) * sampling / (sampling + over)
    # Part by part: one long stall is in few of them, a tail in most.
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
    # Where the level itself steps, seconds on either side are measured by the higher one.
    high = sliding_window_view(np.pad(running, 1, mode="edge"), 3).max(axis=1)
    return np.repeat(np.append(high, high[-1]), _BLOCK)[: len(z)]
