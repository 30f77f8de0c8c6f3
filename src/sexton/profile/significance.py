"""Statistical tests: tail probabilities, false discovery rate, and a test over blocks of time.

Only numpy, because a node should not need scipy. Each tail is computed from its own side (never as
one minus the other), so that 1e-30 stays 1e-30. The incomplete beta function is the modified Lentz
evaluation of its continued fraction (NIST DLMF 8.17.22).

>>> round(float(t_tail(2.228138852, 10)), 6)       # the tabled two-sided 5 % point of t(10)
0.025
>>> [round(float(q), 3) for q in benjamini_hochberg([0.01, 0.02, 0.03, 0.5])]
[0.04, 0.04, 0.04, 0.5]
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I64, Floats

_TINY = 1e-300
_CLOSE = 1e-15
_STEPS = 20_000


def log_gamma(x: npt.ArrayLike) -> Floats:
    """ln Γ(x) for x > 0: `math.lgamma`, once per distinct value."""
    values, where = np.unique(np.asarray(x, np.float64), return_inverse=True)
    result = np.fromiter((math.lgamma(value) for value in values), np.float64, len(values))
    return result[where].reshape(np.shape(x))


def _beta(a: Floats, b: Floats, x: Floats, rest: Floats) -> Floats:
    # `rest` is 1 - x, passed separately because the difference loses its digits near 1.
    a, b, x, rest = np.broadcast_arrays(a, b, x, rest)
    shape = a.shape
    a, b, x, rest = (np.array(array, np.float64).ravel() for array in (a, b, x, rest))
    # The fraction converges fast only below the mean: mirror what lies above it.
    mirrored = x > (a + 1) / (a + b + 2)
    first, second = np.where(mirrored, b, a), np.where(mirrored, a, b)
    near, far = np.where(mirrored, rest, x), np.where(mirrored, x, rest)
    with np.errstate(divide="ignore"):
        log_front = (
            first * np.log(near)
            + second * np.log(far)
            - np.log(first)
            - (log_gamma(first) + log_gamma(second) - log_gamma(first + second))
        )
    found = np.where(near <= 0, 0.0, np.exp(log_front) * _fraction(first, second, near))
    return np.where(mirrored, 1 - found, found).clip(0, 1).reshape(shape)


def _fraction(a: Floats, b: Floats, x: Floats) -> Floats:
    c = np.ones_like(x)
    d = 1 - (a + b) * x / (a + 1)
    d = 1 / np.where(np.abs(d) < _TINY, _TINY, d)
    total = d.copy()
    for step in range(1, _STEPS):
        twice = 2 * step
        even = step * (b - step) * x / ((a + twice - 1) * (a + twice))
        odd = -(a + step) * (a + b + step) * x / ((a + twice) * (a + twice + 1))
        change = np.ones_like(x)
        for part in (even, odd):
            d = 1 + part * d
            d = 1 / np.where(np.abs(d) < _TINY, _TINY, d)
            c = 1 + part / c
            c = np.where(np.abs(c) < _TINY, _TINY, c)
            change = c * d
            total = total * change
        if np.all(np.abs(change - 1) < _CLOSE):
            break
    return total


def t_tail(t: npt.ArrayLike, df: npt.ArrayLike) -> Floats:
    """P[T ≥ t] of Student's t with `df` degrees of freedom (need not be whole)."""
    values, degrees = np.broadcast_arrays(np.asarray(t, np.float64), np.asarray(df, np.float64))
    square = values**2
    beyond = 0.5 * _beta(
        degrees / 2,
        np.full(degrees.shape, 0.5),
        degrees / (degrees + square),
        square / (degrees + square),
    )
    return np.where(values >= 0, beyond, 1 - beyond)


def binomial_tail(k: npt.ArrayLike, n: npt.ArrayLike, p: npt.ArrayLike) -> Floats:
    """P[X ≥ k], X the successes of `n` trials of probability `p`."""
    least, trials, chance = np.broadcast_arrays(*(np.asarray(v, np.float64) for v in (k, n, p)))
    inside = (least > 0) & (least <= trials)
    a = np.where(inside, least, 1.0)
    b = np.where(inside, trials - least + 1, 1.0)
    return np.where(inside, _beta(a, b, chance, 1 - chance), np.where(least <= 0, 1.0, 0.0))


def hypergeometric_tail(k: int, drawn: int, marked: int, total: int) -> float:
    """P[X ≥ k] marked ones among `drawn` of `total`, `marked` of which are marked.

    One-sided Fisher: Fisher's lady had 3 or more of 4 right by chance with 17/70.

    >>> round(hypergeometric_tail(3, 4, 4, 8) * 70)
    17
    """
    low, high = max(0, drawn + marked - total), min(drawn, marked)
    if k <= low:
        return 1.0
    if k > high:
        return 0.0
    # Terms of k, k+1, … by their ratios: no cancellation, and only one log-gamma expression.
    x = np.arange(k, high, dtype=np.float64)
    ratios = (marked - x) * (drawn - x) / ((x + 1) * (total - marked - drawn + x + 1))
    sums = 1.0 + float(np.cumprod(ratios).sum())
    first = (
        _log_choose(marked, k) + _log_choose(total - marked, drawn - k) - _log_choose(total, drawn)
    )
    return min(1.0, math.exp(first + math.log(sums)))


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def benjamini_hochberg(p: npt.ArrayLike, tests: int | None = None) -> Floats:
    """q per p: the smallest false discovery rate at which it is significant.

    `tests` is the number of all tests, where uninteresting ones were left out of `p` (as if their
    p was 1). NaN stays NaN and does not count.
    """
    given = np.asarray(p, np.float64)
    q = np.full(given.shape, np.nan)
    known = np.flatnonzero(~np.isnan(given))
    if not len(known):
        return q
    order = known[np.argsort(given[known], kind="stable")]
    scaled = given[order] * (tests or len(known)) / np.arange(1, len(order) + 1)
    q[order] = np.minimum.accumulate(scaled[::-1])[::-1].clip(0, 1)
    return q


def simes(p: npt.ArrayLike) -> float:
    """One p for a group of tests (Simes), valid where they are positively correlated."""
    ordered = np.sort(np.asarray(p, np.float64))
    return float(min(1.0, np.min(ordered * len(ordered) / np.arange(1, len(ordered) + 1))))


class Blocks(NamedTuple):
    """Counts per block of time (rows, in order) and item (columns), and each block's samples."""

    counts: I64
    samples: I64


#: Blocks are combined into at most this many: a burst of some seconds is then one observation.
BATCHES = 24
#: With fewer blocks on a side, or fewer samples of an item on both, nothing is tested.
LEAST_BLOCKS = 4
LEAST_SAMPLES = 5
#: Counts up to this are tested exactly; above, the variance between blocks dominates.
_EXACT = 2_000


def difference_q(before: Blocks, after: Blocks) -> Floats:
    """q per item: has its share of the samples changed between the two sides?

    The variance is that between blocks of time, not samples: ten samples of one burst are one
    event, not ten. It is never smaller than that of independent samples, and p is never smaller
    than that of the exact test of the counts. NaN where there are too few samples to test.
    """
    items = before.counts.shape[1]
    p = np.full(items, np.nan)
    one, two = _batched(before), _batched(after)
    if min(len(one.samples), len(two.samples)) < LEAST_BLOCKS:
        return p
    left, right = one.counts.sum(axis=0), two.counts.sum(axis=0)
    test = np.flatnonzero(left + right >= LEAST_SAMPLES)
    n_left, n_right = float(one.samples.sum()), float(two.samples.sum())
    pooled = (left[test] + right[test]) / (n_left + n_right)
    binomial = pooled * (1 - pooled)
    share_l, var_l, df_l = _ratio(one, test, binomial / n_left)
    share_r, var_r, df_r = _ratio(two, test, binomial / n_right)
    variance = var_l + var_r
    df = variance**2 / (var_l**2 / df_l + var_r**2 / df_r + _TINY)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(share_r - share_l) / np.sqrt(variance)
    # An item with all samples of both sides has no variance and no difference.
    t = np.nan_to_num(t, nan=0.0, posinf=0.0)
    by_blocks = np.minimum(1.0, 2 * t_tail(t, np.maximum(df, 1.0)))
    p[test] = np.maximum(by_blocks, _exact(left[test], right[test], n_left / (n_left + n_right)))
    return benjamini_hochberg(p)


def observations(blocks: Blocks) -> int:
    """How many blocks of a side are compared: those with samples, combined where there are many."""
    return min(int(np.count_nonzero(blocks.samples)), BATCHES)


def _batched(blocks: Blocks) -> Blocks:
    kept = blocks.samples > 0
    counts, samples = blocks.counts, blocks.samples
    if not kept.all():
        counts, samples = counts[kept], samples[kept]
    if len(samples) <= BATCHES:
        return Blocks(counts, samples)
    edges = np.linspace(0, len(samples), BATCHES + 1).astype(np.int64)[:-1]
    return Blocks(np.add.reduceat(counts, edges, axis=0), np.add.reduceat(samples, edges))


def _ratio(side: Blocks, items: I64, floor: Floats) -> tuple[Floats, Floats, Floats]:
    """Each item's share, its variance as a ratio of two sums over blocks, and its degrees."""
    samples = side.samples.astype(np.float64)
    total = samples.sum()
    counts = side.counts[:, items].astype(np.float64)
    share = counts.sum(axis=0) / total
    strays = counts - samples[:, None] * share
    blocks = len(samples)
    square = (strays**2).sum(axis=0)
    lag = (strays[1:] * strays[:-1]).sum(axis=0) / np.maximum(square, _TINY)
    lag = unbiased_lag(lag, blocks)
    # A load that lasts longer than a block: its blocks are correlated and count less.
    repeat = (1 + lag) / (1 - lag)
    variance = square * blocks / (blocks - 1) / total**2 * repeat
    return share, np.maximum(variance, floor), np.maximum(1.0, blocks / repeat - 1)


def unbiased_lag(lag: Floats, number: int) -> Floats:
    """The lag-1 autocorrelation without the bias of small samples.

    Kendall 1954: it is too small by (1 + 3ρ)/n. Negative values count as zero.
    """
    return np.clip(lag + (1 + 3 * np.maximum(lag, 0.0)) / number, 0.0, 0.95)


def _exact(left: I64, right: I64, chance_left: float) -> Floats:
    """Two-sided p of `left` against `right` given their sum; 0 where the counts are large."""
    p = np.zeros(len(left))
    small = np.flatnonzero(left + right <= _EXACT)
    if not len(small):
        return p
    pairs, where = np.unique(
        np.stack([left[small], right[small]], axis=1), axis=0, return_inverse=True
    )
    a, b = pairs[:, 0], pairs[:, 1]
    upper = binomial_tail(a, a + b, chance_left)
    lower = binomial_tail(b, a + b, 1 - chance_left)
    p[small] = np.minimum(1.0, 2 * np.minimum(upper, lower))[where.ravel()]
    return p
