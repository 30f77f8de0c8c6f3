"""Where each core's time went: the only definition of a core's shares.

A virtual core may not get all of the time, and not every hypervisor reports the rest as steal time:
ticks are lost, and the parts of a step do not add up to it. A share is therefore a share of the
time the core was *given*, as in mpstat: a core that was in the kernel whenever it ran is at 100 %.
Over several steps it is the time spent divided by the time given, not a mean of shares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sexton.model.rows.cpu import CoreTimes
from sexton.model.window import Batch, Columns, Key, Window, columns_of
from sexton.series.rates import (
    BLIND_S,
    F32,
    F64,
    SLACK,
    Bools,
    Run,
    Series,
    Stepper,
    Steps,
    counts_on,
    runs,
)

#: If less than WHOLE of a step is accounted for, ticks were lost. Below ENOUGH, too few are left to
#: compute a share: the step is unknown, and no evidence of a busy core or of a calm one.
WHOLE, ENOUGH = 0.85, 0.2
USER = ("user_ms", "nice_ms")
SYSTEM = ("system_ms",)
SOFTIRQ = ("irq_ms", "softirq_ms")
WAIT = ("iowait_ms", "steal_ms")
STEAL = ("steal_ms",)
IDLE = ("idle_ms",)
KERNEL = (*SYSTEM, *SOFTIRQ)
PARTS = (*USER, *SYSTEM, *SOFTIRQ, *WAIT, *IDLE)
#: A recording is not believed beyond this when it says how many rows to make room for.
_MOST_ROWS = 10_000_000
_KINDS = ("user", "system", "softirq", "wait", "stolen", "given")


class Shares(NamedTuple):
    """One core over a span, in per cent of the `given_s` seconds it was given."""

    user: float
    system: float
    softirq: float
    wait: float
    given_s: float
    seconds: float

    @property
    def kernel(self) -> float:
        return self.system + self.softirq

    @property
    def busy(self) -> float:
        return self.user + self.kernel


def together(parts: Sequence[Shares]) -> Shares:
    """One core over several spans, or several cores: the time spent divided by the time given.

    >>> together([Shares(10, 20, 0, 0, 1, 1), Shares(40, 50, 0, 0, 2, 2)])
    Shares(user=30.0, system=40.0, softirq=0.0, wait=0.0, given_s=3, seconds=3)
    """
    given = sum(part.given_s for part in parts)
    kinds = (sum(part[at] * part.given_s for part in parts) / given for at in range(4))
    user, system, softirq, wait = kinds
    return Shares(user, system, softirq, wait, given, sum(part.seconds for part in parts))


class Hold(NamedTuple):
    """A core above a limit in consecutive steps: how long, and its shares.

    A counter tells how much of a step was spent, not when within it. So a hold consists of whole
    steps: it begins and ends with a reading (monotonic seconds; `wall` is the UNIX time of its
    end), and its shares cover exactly these seconds. The real duration is at least that, and less
    than one step longer at either end.
    """

    core: int
    start: float
    end: float
    wall: float
    shares: Shares

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def wall_start(self) -> float:
        return self.wall - self.seconds

    @property
    def is_softirq(self) -> bool:
        return self.shares.softirq > self.shares.system

    def lasts(self, seconds: float) -> bool:
        """Did it last this long, within the precision of readings?"""
        return self.seconds >= seconds * SLACK

    def overlap(self, start: float, end: float) -> float:
        """Seconds it has in common with a span."""
        return max(0.0, min(self.end, end) - max(self.start, start))


class CoreSeries(NamedTuple):
    """Seconds by kind, and seconds given: a row per core, a column per step."""

    start: F64
    end: F64
    wall: F64
    cores: list[int]
    user: F32
    system: F32
    softirq: F32
    wait: F32
    stolen: F32  # by the hypervisor; a part of `wait`
    given: F32

    @property
    def kernel(self) -> F32:
        """Seconds in the kernel: system time and interrupts."""
        return self.system + self.softirq

    @property
    def things(self) -> list[Key]:
        return [(core,) for core in self.cores]

    def percent(self, seconds: F32) -> F32:
        """Seconds per step, in per cent of what each core was given."""
        made: F32 = 100 * seconds
        with np.errstate(divide="ignore", invalid="ignore"):  # in place: a night is 16 MB
            np.divide(made, self.given, out=made)
            np.minimum(made, np.float32(100), out=made)
        return made

    def spent(self, columns: Sequence[str]) -> F32:
        """Seconds per step of one kind, given by its columns."""
        kinds = {USER: self.user, SYSTEM: self.system, SOFTIRQ: self.softirq, WAIT: self.wait,
                 STEAL: self.stolen}  # fmt: skip
        return self.kernel if tuple(columns) == KERNEL else kinds[tuple(columns)]

    def held(self, limit: float, lasting: float = 0.0) -> list[Hold]:
        """Stretches of `lasting` seconds in which a core spent at least `limit` per cent in the
        kernel."""
        return self.above(self.kernel, limit, lasting)

    def above(self, spent: F32, limit: float, lasting: float) -> list[Hold]:
        """The same for any seconds per step; core by core, in time order."""
        return self._holds(self.percent(spent) >= limit, lasting)

    def mostly_above(self, spent: F32, limit: float, lasting: float) -> list[Hold]:
        """The same, and a step that is below the limit alone, but not together with the two beside
        it, ends no stretch: its reading came late, or in a pause of some milliseconds."""
        marked = self.percent(spent) >= limit
        if len(self.end) > 2:
            touch = self.start[1:] == self.end[:-1]
            with np.errstate(divide="ignore", invalid="ignore"):
                share = 100 * _of_three(spent) / _of_three(self.given)
            marked[:, 1:-1] |= (share >= limit) & touch[:-1] & touch[1:]
        return self._holds(marked, lasting)

    def _holds(self, marked: Bools, lasting: float) -> list[Hold]:
        found = [run for run in runs(self.times, marked) if run.lasts(lasting)]
        return [
            Hold(self.cores[run.row], run.start, run.end, float(self.wall[run.last]), shares)
            for run, shares in zip(found, self._shares_of(found), strict=True)
        ]

    def _shares_of(self, found: Sequence[Run]) -> list[Shares]:
        """`shares` of many runs at once: a night can have thousands."""
        if not found:
            return []
        rows, at = np.unique([run.row for run in found], return_inverse=True)
        first = np.array([run.first for run in found])
        last = np.array([run.last for run in found])

        def spent(part: F32) -> F64:
            total = np.cumsum(np.nan_to_num(part[rows]), axis=1, dtype=np.float64)
            made: F64 = total[at, last] - np.where(first > 0, total[at, first - 1], 0.0)
            return made

        given = spent(self.given)
        kinds = (self.user, self.system, self.softirq, self.wait)
        shares = (np.minimum(100 * spent(kind) / given, 100.0).tolist() for kind in kinds)
        seconds = (run.seconds for run in found)
        return list(map(Shares, *shares, given.tolist(), seconds))

    @property
    def times(self) -> Series:
        """The steps alone, for `runs`."""
        return Series(self.start, self.end, self.wall, [], self.given)

    def part(self, steps: slice) -> CoreSeries:
        """Some of the steps."""
        times = (self.start[steps], self.end[steps], self.wall[steps])
        kinds = (self.user, self.system, self.softirq, self.wait, self.stolen, self.given)
        user, system, softirq, wait, stolen, given = (kind[:, steps] for kind in kinds)
        return CoreSeries(*times, self.cores, user, system, softirq, wait, stolen, given)

    def shares(self, row: int, steps: slice) -> Shares | None:
        """One core over some steps; `None` if none of them is known."""
        known = ~np.isnan(self.system[row, steps])
        if not known.any():
            return None

        def spent(part: F32) -> float:
            return float(part[row, steps][known].sum(dtype=np.float64))

        given = spent(self.given)
        if given <= 0:
            return None
        kinds = (self.user, self.system, self.softirq, self.wait)
        user, system, softirq, wait = (min(100 * spent(kind) / given, 100.0) for kind in kinds)
        seconds = float((self.end - self.start)[steps][known].sum())
        return Shares(user, system, softirq, wait, given, seconds)

    def over(
        self, start: float, end: float, cores: Collection[int] | None = None
    ) -> dict[int, Shares]:
        """Every core over a span (monotonic seconds): all steps that overlap it, as a whole."""
        steps = self.times.inside(start, end)
        found = {}
        for row, core in enumerate(self.cores):
            if cores is None or core in cores:
                shares = self.shares(row, steps)
                if shares is not None:
                    found[core] = shares
        return found


def _of_three(part: F32) -> F32:
    """The sum of each step and the two beside it."""
    total: F32 = part[:, :-2] + part[:, 1:-1] + part[:, 2:]
    return total


class CoreMeter:
    """Computes the step up to each reading, as readings come in."""

    def __init__(self) -> None:
        self._stepper = Stepper()

    def add(self, batch: Batch[CoreTimes]) -> CoreSeries | None:
        """The step up to this reading; `None` for the first one."""
        columns = columns_of((batch,), CoreTimes, PARTS)
        if columns is None:
            return None
        made = from_steps(self._stepper.add(columns))
        return made if len(made.end) else None


class HeldSoFar:
    """Finds holds in readings that come in pieces, and joins those that continue."""

    def __init__(self) -> None:
        self._last: dict[int, Hold] = {}

    def add(self, piece: CoreSeries, limit: float) -> list[Hold]:
        """Every hold in this piece, including its part in earlier pieces."""
        found = []
        for hold in piece.held(limit):
            before = self._last.get(hold.core)
            if before is not None and before.end == hold.start:
                shares = together((before.shares, hold.shares))
                hold = hold._replace(start=before.start, shares=shares)
            self._last[hold.core] = hold
            found.append(hold)
        return found


def core_series(window: Window) -> CoreSeries | None:
    """Every step of the window; `None` if cores were never read twice."""

    def make() -> CoreSeries | None:
        rows = window.row_count(CoreTimes)
        return from_columns(window.columns(CoreTimes, PARTS), rows)

    return window.keep("core_series", make)


def bridged_series(window: Window) -> CoreSeries | None:
    """The same with a step across missing readings, too: how much time was spent where is known, as
    the kernel counts on, and when in the step is not."""

    def make() -> CoreSeries | None:
        series = core_series(window)
        if series is None or not counts_on(window):
            return series
        whole = not np.isnan(series.system).all(axis=0).any()
        if whole and (series.start[1:] == series.end[:-1]).all():
            return series  # nothing is missing: a night is not computed twice
        rows = window.row_count(CoreTimes)
        return from_columns(window.columns(CoreTimes, PARTS), rows, over_gaps=True)

    return window.keep("bridged_series", make)


def from_columns(
    pieces: Iterable[Columns], rows: int = 0, *, over_gaps: bool = False
) -> CoreSeries | None:
    """The same for columns in pieces, with about this many rows in all."""
    stepper = Stepper(over_gaps=over_gaps)
    made = _Pieces(rows)
    for piece in pieces:
        # A piece of one reading has no step, but may have a core that the others do not have.
        made.add(from_steps(stepper.add(piece)))
    return made.joined()


def from_steps(steps: Steps) -> CoreSeries:
    """Steps of core times as seconds by kind."""
    moved, seconds = steps.moved, steps.seconds

    def part(names: Sequence[str]) -> F64:
        first, *rest = (moved[name] for name in names)
        return sum(rest, first)  # one alone is not copied: a night of 96 cores has 4 million steps

    def known_part(names: Sequence[str]) -> F64:
        """The same where a part that is unknown counts nothing."""
        return sum(np.nan_to_num(moved[name]) for name in names)  # type: ignore[return-value]

    user, system, softirq, wait = part(USER), part(SYSTEM), part(SOFTIRQ), part(WAIT)
    needed = user + system + softirq
    spent = needed + wait + part(IDLE)
    parts = [user, system, softirq, wait, part(STEAL)]
    whole = ~np.isnan(spent)
    # In a long step it hardly matters how late a reading is: what is missing was not given.
    long = whole & (seconds >= BLIND_S)
    if not whole.all():
        # Idle and iowait sometimes step back a little: such a part is left out, and nothing tells
        # whether ticks were lost. If another part is unknown, so is the core.
        parts[3] = known_part(WAIT)
    lost = whole & (spent < WHOLE * 1000 * seconds) | long
    unknown = np.isnan(needed) | lost & (spent < ENOUGH * 1000 * seconds)
    if unknown.any():
        parts = [np.where(unknown, np.nan, array) for array in parts]
    given = np.where(lost & ~unknown, spent / 1000, seconds)
    cores = [int(thing[0]) for thing in steps.things]  # type: ignore[call-overload]
    user_s, system_s, softirq_s, wait_s, stolen_s = map(_in_seconds, parts)
    times = steps.start, steps.end, steps.wall
    kinds = user_s, system_s, softirq_s, wait_s, stolen_s, given.astype(np.float32)
    return CoreSeries(*times, cores, *kinds)


def all_cores(series: CoreSeries) -> CoreSeries:
    """All cores together as one, numbered -1: the seconds spent and given by those that are known.

    >>> one = np.array([[1.0, np.nan], [3.0, 0.5]], np.float32)
    >>> times = np.arange(2.0), np.arange(2.0) + 1, np.arange(2.0) + 1
    >>> every = all_cores(CoreSeries(*times, [0, 1], *[one] * 5, one + 1))
    >>> every.system.tolist(), every.given.tolist()
    ([[4.0, 0.5]], [[6.0, 1.5]])
    """
    known = ~np.isnan(series.system)
    some = known.any(axis=0)

    def total(part: F32) -> F32:
        made: F32 = np.where(some, part.sum(axis=0, where=known), np.float32(np.nan))[None]
        return made

    kinds = (series.user, series.system, series.softirq, series.wait, series.stolen, series.given)
    user, system, softirq, wait, stolen, given = map(total, kinds)
    times = series.start, series.end, series.wall
    return CoreSeries(*times, [-1], user, system, softirq, wait, stolen, given)


def _in_seconds(milliseconds: F64) -> F32:
    made: F32 = np.empty(milliseconds.shape, np.float32)
    np.divide(milliseconds, 1000, out=made, casting="same_kind")
    return made


class _Pieces:
    """Pieces of a series, each put in its place as it comes: twelve hours are not copied again."""

    def __init__(self, rows: int) -> None:
        self._rows = min(rows, _MOST_ROWS)
        self._cores: list[int] = []
        self._times: list[tuple[F64, F64, F64]] = []
        self._made: F32 = np.empty((len(_KINDS), 0, 0), np.float32)
        self._steps = 0

    def add(self, piece: CoreSeries) -> None:
        """Put the next piece behind the others."""
        last = self._steps + len(piece.end)
        new = not set(self._cores).issuperset(piece.cores)
        if new or last > self._made.shape[2]:
            self._grow(sorted({*self._cores, *piece.cores}), last)
        place = self._made[:, :, self._steps : last]
        rows: slice | list[int] = slice(None)
        if piece.cores != self._cores:
            place[:] = np.nan
            rows = [self._cores.index(core) for core in piece.cores]
        for at, name in enumerate(_KINDS):
            place[at, rows] = getattr(piece, name)
        self._times.append((piece.start, piece.end, piece.wall))
        self._steps = last

    def _grow(self, cores: list[int], steps: int) -> None:
        """Room for these cores and at least this many steps."""
        room = max(steps, self._rows // max(len(cores), 1))
        if room < 2 * self._steps and cores == self._cores:
            room = 2 * self._steps  # more than announced: do not copy all for each piece
        made = np.empty((len(_KINDS), len(cores), room), np.float32)
        made[:, :, : self._steps] = np.nan
        rows = [cores.index(core) for core in self._cores]
        made[:, rows, : self._steps] = self._made[:, :, : self._steps]
        self._made, self._cores = made, cores

    def joined(self) -> CoreSeries | None:
        """The whole series; `None` if it has no step."""
        if not self._steps:
            return None
        start, end, wall = (np.concatenate(times) for times in zip(*self._times, strict=True))
        return CoreSeries(start, end, wall, self._cores, *self._made[:, :, : self._steps])


class Overlap:
    """A core's shares over the steps of another table, which is read slightly earlier or later.

    The other table's steps are from `start` to `end`; each step of the core counts by its overlap.

    >>> one = np.array([[1.0, np.nan, 0.5]], np.float32)
    >>> times = np.arange(4.0)
    >>> series = CoreSeries(times[:3], times[1:], times[1:], [7], *[one] * 5, one / one)
    >>> Overlap(series, np.array([0.5, 1.0]), np.array([1.0, 2.0])).system(7)
    array([100.,  nan])
    """

    def __init__(self, series: CoreSeries, start: F64, end: F64) -> None:
        self._series, self._start, self._end = series, start, end
        edges = np.concatenate([series.start, series.end])
        self._order = np.argsort(edges, kind="stable")
        self._edges: F64 = edges[self._order]

    def system(self, core: int) -> F64:
        """System time per step, in per cent of the time the core was given; NaN if unknown."""
        if core not in self._series.cores:
            return np.full(len(self._end), np.nan)
        row = self._series.cores.index(core)
        known = ~np.isnan(self._series.system[row]) & ~np.isnan(self._series.given[row])
        spent = self._seconds(np.where(known, self._series.system[row], 0))
        given = self._seconds(np.where(known, self._series.given[row], 0))
        made: F64 = np.full(len(given), np.nan)
        np.divide(100 * spent, given, out=made, where=given > 0)
        return made

    def _seconds(self, by_step: F32) -> F64:
        """Seconds of the core's steps that fall into each step of the other table."""
        total = np.cumsum(by_step, dtype=np.float64)
        sums = np.concatenate([total - by_step, total])[self._order]
        made: F64 = np.interp(self._end, self._edges, sums)
        made -= np.interp(self._start, self._edges, sums)
        return made
