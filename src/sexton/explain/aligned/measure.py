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


def measured(signals: Iterable[Signal], layout: Layout) -> Iterator[Measured]:
    """Measure signals in batches of those with the same readings."""
    batch: list[Signal] = []
    places: _Places | None = None
    for signal in signals:
        if places is None or signal.mono_s is not places.of:
            if batch and places is not None:
                yield _measured(batch, places)
            batch, places = [], _Places(signal.mono_s, layout)
        elif len(batch) >= _TOGETHER or len(batch) * len(signal.mono_s) >= _MOST_VALUES:
            yield _measured(batch, places)
            batch = []
        batch.append(signal)
    if batch and places is not None:
        yield _measured(batch, places)


class _Places:
    """Where windows and bins lie among the readings `of` a table: the same for all its signals."""

    def __init__(self, of: F64, layout: Layout) -> None:
        self.of = of
        #: Readings in or just outside a window: the others need not be summed.
        self.kept = _near(of, np.array(layout.windows).reshape(-1, 2))
        self.mono: F64 = of[self.kept]
        ends = np.array(layout.ends)
        events = np.array([stratum.event for stratum in layout.strata])
        self.shape = (len(layout.spans), len(ends), len(events))
        self.windows: list[_Between] = []
        if len(self.mono) < 2:
            return
        last = _slid(self.mono, ends)
        self.windows = [_Between(self.mono, last - span, last) for span in layout.spans]
        edges = np.linspace(-layout.lookback_s, 0.0, BINS + 1) + _slid(self.mono, events)[:, None]
        self.bins = _Between(self.mono, edges[:, :-1].ravel(), edges[:, 1:].ravel())


def _near(mono: F64, windows: F64) -> Ints:
    change = np.zeros(len(mono) + 1, np.intp)
    # A window may slide back by a step, and its first step begins with a reading before.
    first = np.searchsorted(mono, windows[:, 0]) - 4
    np.add.at(change, np.maximum(first, 0), 1)
    np.add.at(change, np.minimum(np.searchsorted(mono, windows[:, 1]) + 2, len(mono)), -1)
    return np.flatnonzero(np.cumsum(change[:-1]) > 0)


def _measured(batch: list[Signal], places: _Places) -> Measured:
    kept, mono = places.kept, places.mono
    labels = [Label(signal.kind, signal.about, signal.name, signal.unit) for signal in batch]
    spans, ends, events = places.shape
    shape = (len(batch), events, BINS)
    if not places.windows:
        nothing = np.full((spans, len(batch), ends), np.nan, np.float32)
        return Measured(labels, nothing, np.full(shape, np.nan, np.float32))
    values = np.stack([signal.value[kept] for signal in batch]).astype(np.float64)
    values[:, np.flatnonzero(np.diff(kept, prepend=-2) > 1)] = np.nan  # steps across a gap
    spent = np.diff(mono)
    steps = values[:, 1:] * spent
    known = np.isfinite(steps)
    if (known == known[0]).all():
        known = known[:1]  # read together, mostly the same steps are known of all
    running = _running(np.where(known, steps, 0.0))
    seen = _running(known * spent)
    windows = np.stack([window.means(running, seen) for window in places.windows])
    onset = places.bins.means(running, seen)
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


class _Between:
    """From some moments to others, as positions between readings."""

    def __init__(self, mono: F64, start: F64, end: F64) -> None:
        self._start, self._end = _points(mono, start), _points(mono, end)
        self._enough = (end - start) / 2 - 1e-9

    def means(self, running: F64, seen: F64) -> F64:
        """Means by running sums of values and of known seconds, NaN if less than half is known."""
        whole = self._moved(seen)
        with np.errstate(divide="ignore", invalid="ignore"):
            means = self._moved(running) / whole
        found: F64 = np.where(whole >= self._enough, means, np.nan)
        return found

    def _moved(self, running: F64) -> F64:
        return self._end.of(running) - self._start.of(running)


class _Points(NamedTuple):
    """Moments as positions between readings."""

    place: Ints
    part: F64

    def of(self, running: F64) -> F64:
        """A running sum at each moment, interpolated."""
        left, right = running[:, self.place - 1], running[:, self.place]
        found: F64 = left + self.part * (right - left)
        return found


def _points(mono: F64, moments: F64) -> _Points:
    place = np.clip(np.searchsorted(mono, moments), 1, len(mono) - 1)
    left = mono[place - 1]
    step = np.maximum(mono[place] - left, 1e-12)
    return _Points(place, np.clip((moments - left) / step, 0.0, 1.0))
