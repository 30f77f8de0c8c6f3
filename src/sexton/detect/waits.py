"""Waits of the network's softirqs that the probe measured, and where it watched.

The probe tells per core how long the longest wait was that ended since the reading before, and how
long one has been under way. A long wait is seen by several readings: first under way, and longer
each time, then ended; here it becomes one. Where the probe watched it knows better than any
inference from counters: a core that polled nothing, and where nothing waited, starved nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sexton.detect.threshold import Threshold
from sexton.model.finding import Evidence
from sexton.model.softirq import ProbeCost, SoftirqWait
from sexton.model.text import seconds as duration
from sexton.model.window import Batch, Key, Window

_FIELDS = ("longest_us", "pending_us")

WAIT = Threshold(
    "wait", 1, "s without a poll", "a busy core polls within 10 ms; a second is no queueing"
)
GRAVE = Threshold(
    "grave wait", 5, "s without a poll", "ENA and the kernel reset a device after 5 s"
)
SOURCE = "bpf(2): softirq_raise, softirq_entry"
_NORMAL = "< 10 ms"
_PAUSED = "the machine itself stood still meanwhile (a paused or overbooked virtual machine)"


class MeasuredWait(NamedTuple):
    """One softirq vector that waited for one core, in monotonic seconds.

    `is_over` is false where it was still waiting, or had been when the probe last looked: then it
    took at least so long.
    """

    core: int
    vector: str
    seconds: float
    end: float
    is_over: bool

    @property
    def start(self) -> float:
        return self.end - self.seconds


def measured_waits(window: Window, at_least_s: float) -> list[MeasuredWait]:
    """Waits of that length and more, the longest first."""
    found = _waits(window, at_least_s * 1e6)
    return sorted(found, key=lambda each: -each.seconds)


def _waits(window: Window, floor_us: float) -> Iterator[MeasuredWait]:
    under_way: dict[tuple[int, str], MeasuredWait] = {}
    for mono_s, follows, cells in _long_waits(window, floor_us):
        before, under_way = under_way, {}
        if not follows:  # what was under way is not seen to end
            yield from before.values()
            before = {}
        for cell in cells:
            known = before.pop((cell.core, cell.vector), None)
            pending_us, longest_us = cell.pending_us or 0, cell.longest_us or 0
            if known is not None and cell.longest_us is not None:
                # While one waits none can end there; so the one that was under way has ended.
                longest_us = max(longest_us, int(known.seconds * 1e6))
            elif known is not None and pending_us < known.seconds * 1e6:
                yield known  # its end was missed
            if longest_us >= floor_us:
                yield MeasuredWait(cell.core, cell.vector, longest_us / 1e6, mono_s, True)
            if pending_us >= floor_us:
                still = MeasuredWait(cell.core, cell.vector, pending_us / 1e6, mono_s, False)
                under_way[cell.core, cell.vector] = still
        yield from before.values()
    yield from under_way.values()


class _Cell(NamedTuple):
    """One core and vector at one reading."""

    core: int
    vector: str
    longest_us: int | None
    pending_us: int | None


def _long_waits(window: Window, floor_us: float) -> Iterator[tuple[float, bool, list[_Cell]]]:
    """Readings with a wait of that length, and those after one that was under way.

    Found by columns: of rows that tell of no long wait a night has millions.
    """
    last: dict[Key, bool] = {}
    for piece in window.columns(SoftirqWait, _FIELDS):
        longest, pending = (piece.values[name] for name in _FIELDS)
        started = np.array([last.get(thing, False) for thing in piece.things], np.bool_)
        waits = pending >= floor_us
        after = np.concatenate([started[:, None], waits[:, :-1]], axis=1)
        telling = (longest >= floor_us) | waits | after
        last = dict(zip(piece.things, waits[:, -1].tolist(), strict=True))
        for at in np.flatnonzero(telling.any(axis=0)).tolist():
            cells = [
                _cell(piece.things[row], longest[row, at], pending[row, at])
                for row in np.flatnonzero(telling[:, at]).tolist()
            ]
            yield float(piece.mono[at]), bool(piece.follows[at]), cells


def _cell(thing: Key, longest: float, pending: float) -> _Cell:
    core, vector = thing
    return _Cell(int(str(core)), str(vector), _known(longest), _known(pending))


def _known(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def longest_wait(window: Window) -> MeasuredWait | None:
    """The longest of all, however short."""
    best: MeasuredWait | None = None
    for piece in window.columns(SoftirqWait, _FIELDS):
        for name, is_over in zip(_FIELDS, (True, False), strict=True):
            value = np.nan_to_num(piece.values[name], nan=-1.0)
            if not value.size:
                continue
            row, at = np.unravel_index(int(value.argmax()), value.shape)
            wait_s = float(value[row, at]) / 1e6
            if wait_s >= 0 and (best is None or wait_s > best.seconds):
                core, vector = piece.things[row]
                best = MeasuredWait(
                    int(str(core)), str(vector), wait_s, float(piece.mono[at]), is_over
                )
    return best


class Watch(NamedTuple):
    """Where the probe watched: spans of monotonic time, and why there is no more of them."""

    spans: tuple[tuple[float, float], ...]
    why_not: str

    @property
    def seconds(self) -> float:
        return sum(end - start for start, end in self.spans)

    def saw(self, start: float, end: float) -> bool:
        """Did it watch all of that time, and from before: a wait already under way when it began
        may raise nothing more that would tell of it."""
        return any(began < start and ended >= end for began, ended in self.spans)


def watch(window: Window) -> Watch:
    """Where the probe watched in this window; readings that touch make one span."""
    spans: list[tuple[float, float]] = []
    why = ""
    batches: Sequence[Batch[ProbeCost]] = window.batches(ProbeCost) or ()
    for earlier, later in pairwise(batches):
        for row in later.rows if later.follows else ():
            if not row.watched:
                why = row.why or why
            elif not later.follows:
                continue  # it did, but since when?
            elif spans and spans[-1][1] == earlier.mono_s:
                spans[-1] = spans[-1][0], later.mono_s
            else:
                spans.append((earlier.mono_s, later.mono_s))
    return Watch(tuple(spans), why)


def of_a_wait(wait: MeasuredWait) -> Evidence:
    """One wait, as evidence."""
    still = "" if wait.is_over else ", and had not ended"
    return Evidence(
        f"core {wait.core}: {wait.vector} raised and not run",
        f"{wait.seconds:.1f} s{still}",
        _NORMAL,
        "s from raise to entry",
        SOURCE,
        wait.seconds,
        _PAUSED,
    )


def of_no_wait(window: Window, watched: Watch) -> Evidence:
    """The longest wait there was, where none was too long."""
    longest = longest_wait(window)
    where = (
        "of a network softirq" if longest is None else f"of {longest.vector}, core {longest.core}"
    )
    return Evidence(
        f"the longest wait {where}",
        "none at all" if longest is None else duration(longest.seconds),
        _NORMAL,
        f"in {duration(watched.seconds)} watched of {duration(window.seconds)}",
        SOURCE,
        0.0 if longest is None else longest.seconds,
        "NAPI polls in threads here, or by busy polling: those raise no softirq",
    )
