"""How likely chance is: permutations that draw one window of each stratum as the event's.

Every window gets the normal score of its rank within its stratum, so that no unit, heavy tail or
single burst counts for more than its rank; equal values share their scores. A signal's statistic is
the sum of its scores at the events, divided by the root of their number; of the two window lengths
the larger. Each draw is made for all signals at once, which preserves their dependence, and p is
the share of draws in which the signal scores at least as high.

`q` is Westfall and Young's step-down maximum over all signals: the share of draws in which the best
of the signals that are not better scores at least as high. It bounds the chance of even one false
discovery, and so their expected share too, under any dependence. The bound by Benjamini and
Hochberg is proven only for positive dependence, which two-sided tests of cores that take work from
one another do not have. Yekutieli's holds but costs a factor of ln m; one maximum costs nothing.

`Effects` are how large the differences are, and in how many events they show.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.explain.aligned.measure import F32
from sexton.model.aligned import F64

#: Known controls a stratum needs to count, or all if it has fewer.
_LEAST_KNOWN = 4
_ROWS = 512
_DRAWS = 250
_NEAR = 1e-4


class Sizes(NamedTuple):
    """Windows per stratum; strata are consecutive, the event's window is the first of each."""

    windows: tuple[int, ...]

    @property
    def starts(self) -> list[int]:
        return [sum(self.windows[:index]) for index in range(len(self.windows))]

    @property
    def slices(self) -> list[slice]:
        return [slice(a, a + n) for a, n in zip(self.starts, self.windows, strict=True)]


class Tested(NamedTuple):
    """Per signal: the signed statistic, the window length it is of, p and q."""

    statistic: F64
    span: npt.NDArray[np.intp]
    p: F64
    q: F64


def strata_known(values: F32, sizes: Sizes) -> npt.NDArray[np.bool_]:
    """Per signal and stratum: are the event's window and enough controls known?"""
    found = np.zeros((len(values), len(sizes.windows)), np.bool_)
    for at, part in enumerate(sizes.slices):
        known = np.isfinite(values[:, part])
        least = min(_LEAST_KNOWN, known.shape[1] - 1)
        found[:, at] = known[:, 0] & (known[:, 1:].sum(axis=1) >= least)
    return found


def scores(values: F32, sizes: Sizes, rng: np.random.Generator) -> F32:
    """Normal scores of the ranks within each stratum; 0 in a stratum without information.

    An unknown control gets the score of a known window of its stratum: 0 would be an average
    window, and make chance look narrower than it is.
    """
    made = np.zeros(values.shape, np.float32)
    counted = strata_known(values, sizes)
    for at, part in enumerate(sizes.slices):
        table = _score_table(sizes.windows[at])
        for start in range(0, len(values), _ROWS):
            rows = slice(start, start + _ROWS)
            made[rows, part] = _scored(values[rows, part], table, rng)
        made[~counted[:, at], part] = 0.0
    return made


def _scored(block: F32, table: F64, rng: np.random.Generator) -> F32:
    known = np.isfinite(block)
    number = known.sum(axis=1)
    less = (block[:, :, None] > block[:, None, :]).sum(axis=2)
    same = (block[:, :, None] == block[:, None, :]).sum(axis=2)
    rows = number[:, None]
    # Equal values share the mean of their scores, so that none exceeds a single first or last.
    found = (table[rows, less + same] - table[rows, less]) / np.maximum(same, 1)
    found = np.where(known, found, 0.0).astype(np.float32)
    lost = ~known & (number > 0)[:, None]
    if lost.any():
        first = np.argsort(~known, axis=1, kind="stable")  # the known ones first
        drawn = (rng.random(block.shape) * number[:, None]).astype(np.intp)
        other = np.take_along_axis(found, np.take_along_axis(first, drawn, axis=1), axis=1)
        found[lost] = other[lost]
    return found


@cache
def _score_table(windows: int) -> F64:
    """[n, k]: the sum of the lowest k scores of n windows."""
    normal = NormalDist()
    table = np.zeros((windows + 1, windows + 1))
    for number in range(1, windows + 1):
        scores = [normal.inv_cdf((rank - 0.5) / number) for rank in range(1, number + 1)]
        table[number, 1 : number + 1] = np.cumsum(scores)
    return table


def smallest_p(sizes: Sizes, draws: int) -> float:
    """The p of a signal that is beyond all its controls at every event, on either side."""
    arrangements = float(math.prod(sizes.windows))
    exact = min(1.0, 2 / arrangements)
    return exact if arrangements <= draws else max(exact, 1 / (draws + 1))


def judge(spans: Sequence[F32], sizes: Sizes, draws: int, seed: int) -> Tested:
    """Test all signals; `spans` are the values per window length, (signals, windows) each."""
    rng = np.random.default_rng(seed)
    made = [scores(values, sizes, rng) for values in spans]
    used = [np.maximum(strata_known(interval, sizes).sum(axis=1), 1) for interval in spans]
    roots = [np.sqrt(number)[:, None].astype(np.float32) for number in used]
    scaled = [array / root for array, root in zip(made, roots, strict=True)]
    observed = np.stack([row[:, sizes.starts].sum(axis=1) for row in scaled])
    span = np.abs(observed).argmax(axis=0)
    statistic = np.take_along_axis(observed, span[None], axis=0)[0].astype(np.float64)
    order = np.argsort(-np.abs(statistic), kind="stable")
    floor = np.abs(statistic)[order] - _NEAR
    alone = np.zeros(len(order))
    best = np.zeros(len(order))
    total = 0
    ordered = [row[order] for row in scaled]
    for chosen in _draws(sizes, draws, rng):
        drawn = np.abs(ordered[0] @ chosen)
        for row in ordered[1:]:
            np.maximum(drawn, np.abs(row @ chosen), out=drawn)
        alone += (drawn >= floor[:, None]).sum(axis=1)
        worse = np.maximum.accumulate(drawn[::-1], axis=0)[::-1]
        best += (worse >= floor[:, None]).sum(axis=1)
        total += chosen.shape[1]
    # If all arrangements were tried, the real one was among them.
    extra = 0 if math.prod(sizes.windows) <= draws else 1
    p, q = np.empty(len(order)), np.empty(len(order))
    p[order] = (alone + extra) / (total + extra)
    q[order] = np.maximum.accumulate((best + extra) / (total + extra))
    # If controls are equal, none may be as far out on the other side: still, p is never reported
    # below what so few events allow.
    least = smallest_p(sizes, draws)
    return Tested(statistic, span, np.maximum(p, least), np.maximum(q, least))


def _draws(sizes: Sizes, draws: int, rng: np.random.Generator) -> Iterator[F32]:
    """The windows drawn as the events', as columns of ones; all ways if there are few."""
    windows = np.array(sizes.windows)
    every = math.prod(sizes.windows) <= draws
    if every:
        chosen = np.stack([index.ravel() for index in np.indices(sizes.windows)])
    else:
        chosen = (rng.random((len(windows), draws)) * windows[:, None]).astype(np.intp)
    places = chosen + np.array(sizes.starts)[:, None]
    for start in range(0, places.shape[1], _DRAWS):
        some = places[:, start : start + _DRAWS]
        made = np.zeros((int(windows.sum()), some.shape[1]), np.float32)
        made[some, np.arange(some.shape[1])] = 1.0
        yield made


#: The least spread, as a part of the largest value: a signal that was constant in every control
#: window would otherwise be infinitely far from them.
_LEAST_SPREAD = 0.01
#: A normal distribution's standard deviation, in median distances from its median.
_NORMAL = 1.4826
_CLEAR = 0.9
_SMOOTH = 3


#: One clock tick, count or sample in a short window; a smaller spread would exaggerate a single
#: one.
_FINEST = {"% of a core": 1.0, "% of time": 0.1, "% of samples": 0.05, "/s": 0.2, "/min": 6.0}


class Effects(NamedTuple):
    """Per signal: medians, their distance in spreads, and the number of events clearly beyond
    their own controls. `usual` is the median of each event's controls, (signals, events), NaN if
    that event does not count."""

    before: F64
    control: F64
    size: F64
    shown: npt.NDArray[np.intp]
    usual: F64


def effects_of(values: F64, units: Sequence[str], sizes: Sizes) -> Effects:
    """The effects of signals; `values` are (signals, windows)."""
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
    still = spread == 0  # mostly constant: use the few values that differ
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
    """Medians by row, without NaN."""
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
    """How long before the event the signal began to differ, None if it never did.

    It is the beginning of the span that stands out most over all events together, by at least half
    of its height. `onset` is (events, bins), the oldest bin first; the sign of `size` is the
    direction.

    >>> quiet, loud = np.zeros((1, 50)), np.ones((1, 10))
    >>> lead_of(np.hstack([quiet, loud]), np.zeros(1), 9.0, 60.0)
    10.0
    """
    strays = (onset - usual[:, None]) * np.sign(size)
    middle = _medians(strays.T)
    finite = np.flatnonzero(np.isfinite(middle))
    if not size or not len(finite):
        return None
    smooth = min(_SMOOTH, len(finite))
    height = float(np.convolve(middle[finite], np.full(smooth, 1 / smooth), "valid").max())
    if height <= 0:
        return None
    start = _loudest(np.nan_to_num(middle - height / 2))
    bins = onset.shape[1]
    return float(round((bins - max(start, int(finite[0]))) * lookback_s / bins, 3))


def _loudest(weights: F64) -> int:
    """The beginning of the span with the largest sum."""
    best, best_start, total, start = -np.inf, 0, 0.0, 0
    for at, weight in enumerate(weights.tolist()):
        if total <= 0:
            total, start = 0.0, at
        total += weight
        if total > best:
            best, best_start = total, start
    return best_start
