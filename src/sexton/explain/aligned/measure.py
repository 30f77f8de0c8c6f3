"""The value of a signal in each window: means over time, at any rate of reading.

A value applies from the previous reading to its own. A window ends with the last reading before its
event, so that it contains no effect of the event; in a table that is read every ten seconds, the
step around the event counts pro rata if most of it lies before. Unknown values are NaN, and so is a
window less than half known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.explain.aligned.layout import Layout
from sexton.model.aligned import F64, Signal

Ints = npt.NDArray[np.intp]
F32 = npt.NDArray[np.float32]

#: Bins of the time before an event, in which the onset is searched.
BINS = 60
_TOGETHER = 128
_MOST_VALUES = 1 << 21
#: Steps up to this length never count across the event.
_SHORT_STEP_S = 2.5


class Label(NamedTuple):
    kind: str
    about: str
    name: str
    unit: str


class Measured(NamedTuple):
    """Some signals: their value per window length and window (spans, signals, windows), and in each
    bin of the time before each event (signals, events, bins), the oldest first."""

    labels: list[Label]
    windows: F32
    onset: F32


class _Points(NamedTuple):
    """Moments as positions between readings."""

    place: Ints
    part: F64

    def of(self, running: F64) -> F64:
        """A running sum at each moment, interpolated."""
        left, right = running[:, self.place - 1], running[:, self.place]
        found: F64 = left + self.part * (right - left)
        return found


def measured(signals: Iterable[Signal], layout: Layout) -> Iterator[Measured]:
    """Measure signals in batches of those with the same readings."""
    near = _Near(layout)
    batch: list[Signal] = []
    for signal in signals:
        if batch and (
            signal.mono_s is not batch[0].mono_s
            or len(batch) >= _TOGETHER
            or len(batch) * len(signal.mono_s) >= _MOST_VALUES
        ):
            yield _measured(batch, layout, near)
            batch = []
        batch.append(signal)
    if batch:
        yield _measured(batch, layout, near)


class _Near:
    """Finds the readings in or just outside a window: the others need not be summed."""

    def __init__(self, layout: Layout) -> None:
        windows = np.array(layout.windows).reshape(-1, 2)
        self._start, self._end = windows[:, 0], windows[:, 1]
        self._of: F64 | None = None
        self._kept: Ints = np.empty(0, np.intp)

    def kept(self, mono: F64) -> Ints:
        if self._of is not mono:
            change = np.zeros(len(mono) + 1, np.intp)
            # A window may slide back by a step, and its first step begins with a reading before.
            first = np.searchsorted(mono, self._start) - 4
            np.add.at(change, np.maximum(first, 0), 1)
            np.add.at(change, np.minimum(np.searchsorted(mono, self._end) + 2, len(mono)), -1)
            self._of, self._kept = mono, np.flatnonzero(np.cumsum(change[:-1]) > 0)
        return self._kept


def _measured(batch: list[Signal], layout: Layout, near: _Near) -> Measured:
    kept = near.kept(batch[0].mono_s)
    mono = batch[0].mono_s[kept]
    values = np.stack([signal.value[kept] for signal in batch]).astype(np.float64)
    if len(kept):
        values[:, np.flatnonzero(np.diff(kept, prepend=-2) > 1)] = np.nan  # steps across a gap
    labels = [Label(signal.kind, signal.about, signal.name, signal.unit) for signal in batch]
    ends = np.array(layout.ends)
    events = np.array([stratum.event for stratum in layout.strata])
    if len(mono) < 2:
        nothing = np.full((len(layout.spans), len(batch), len(ends)), np.nan, np.float32)
        return Measured(labels, nothing, np.full((len(batch), len(events), BINS), np.nan, "f4"))
    spent = np.diff(mono)
    steps = values[:, 1:] * spent
    known = np.isfinite(steps)
    running = _running(np.where(known, steps, 0.0))
    seen = _running(known * spent)
    last = _slid(mono, ends)
    windows = np.stack([_means((running, seen), mono, last - span, last) for span in layout.spans])
    edges = np.linspace(-layout.lookback_s, 0.0, BINS + 1) + _slid(mono, events)[:, None]
    shape = (len(batch), len(events), BINS)
    onset = _means((running, seen), mono, edges[:, :-1].ravel(), edges[:, 1:].ravel())
    return Measured(labels, windows.astype(np.float32), onset.astype(np.float32).reshape(shape))


def _running(steps: F64) -> F64:
    found = np.zeros((len(steps), steps.shape[1] + 1))
    np.cumsum(steps, axis=1, out=found[:, 1:])
    return found


def _slid(mono: F64, ends: F64) -> F64:
    """Each end moved back to the last reading before it; unchanged inside a long step.

    It moves no further than readings are apart: beyond that, nothing was read just before.
    """
    most = max(_SHORT_STEP_S, float(np.median(np.diff(mono))))
    after = np.clip(np.searchsorted(mono, ends, side="right"), 1, len(mono) - 1)
    before = mono[after - 1]
    step = mono[after] - before
    inside = ends - before
    cut = (step > _SHORT_STEP_S) & (inside >= step / 2)
    cut |= (inside < 0) | (inside > most)  # outside the recording, or in a gap
    found: F64 = np.where(cut, ends, np.minimum(before, ends))
    past = ends >= mono[-1]
    return np.where(past & (ends - mono[-1] <= most), mono[-1], found)


def _means(sums: tuple[F64, F64], mono: F64, start: F64, end: F64) -> F64:
    """Means between moments, NaN if less than half is known."""
    one, two = _points(mono, start), _points(mono, end)
    running, seen = sums
    whole = two.of(seen) - one.of(seen)
    enough = whole >= (end - start) / 2 - 1e-9
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (two.of(running) - one.of(running)) / whole
    found: F64 = np.where(enough, means, np.nan)
    return found


def _points(mono: F64, moments: F64) -> _Points:
    place = np.clip(np.searchsorted(mono, moments), 1, len(mono) - 1)
    left = mono[place - 1]
    step = np.maximum(mono[place] - left, 1e-12)
    return _Points(place, np.clip((moments - left) / step, 0.0, 1.0))
