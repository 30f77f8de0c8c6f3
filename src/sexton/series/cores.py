"""Where each core's time went: the one definition of a core's shares.

A virtual core may get less than all the time, and not every hypervisor reports that as steal time:
ticks are lost then, and the parts of a step do not add up to it. A share is therefore a share of
the time the core was *given*, as mpstat computes it: a core that was in the kernel whenever it ran
did nothing else. Over several steps it is the time spent over the time given, not a mean of shares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from sexton.model.rows.cpu import CoreTimes
from sexton.model.window import Batch, Columns, Key, Window, columns_of
from sexton.series.rates import F32, F64, SLACK, Run, Series, Stepper, Steps, runs

#: Less than WHOLE of a step is accounted for only where ticks were lost; less than ENOUGH, and too
#: few ticks are left to judge by.
WHOLE, ENOUGH = 0.85, 0.2
USER = ("user_ms", "nice_ms")
SYSTEM = ("system_ms",)
SOFTIRQ = ("irq_ms", "softirq_ms")
WAIT = ("iowait_ms", "steal_ms")
STEAL = ("steal_ms",)
IDLE = ("idle_ms",)
KERNEL = (*SYSTEM, *SOFTIRQ)
PARTS = (*USER, *SYSTEM, *SOFTIRQ, *WAIT, *IDLE)
#: Idle and iowait step back a little now and then: such a part is left out, not the core.
_NEEDED = (*USER, *KERNEL)


class Shares(NamedTuple):
    """Of one core over a span, in per cent of the `given_s` seconds it was given."""

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
    """One core over several spans: the time spent over the time given.

    >>> together([Shares(10, 20, 0, 0, 1, 1), Shares(40, 50, 0, 0, 2, 2)])
    Shares(user=30.0, system=40.0, softirq=0.0, wait=0.0, given_s=3, seconds=3)
    """
    given = sum(part.given_s for part in parts)
    kinds = (sum(part[at] * part.given_s for part in parts) / given for at in range(4))
    user, system, softirq, wait = kinds
    return Shares(user, system, softirq, wait, given, sum(part.seconds for part in parts))


class Hold(NamedTuple):
    """A core above a limit in every one of some neighbouring steps: how long, and its shares.

    A counter says how much of a step was spent, not when in it. So a hold is made of whole steps:
    it begins and ends with a reading (monotonic seconds; `wall` is the UNIX time of its end), and
    its shares are of exactly these seconds. It lasted at least so long, and less than a step longer
    at either end.
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
        """At least so long, as far as readings can tell."""
        return self.seconds >= seconds * SLACK

    def overlap(self, start: float, end: float) -> float:
        """Seconds that it shares with a span."""
        return max(0.0, min(self.end, end) - max(self.start, start))


class CoreSeries(NamedTuple):
    """Seconds of every core by kind, and those it was given: a row per core, a column per step."""

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
        """Seconds by step as per cent of what each core was given."""
        with np.errstate(divide="ignore", invalid="ignore"):
            made: F32 = np.minimum(100 * seconds / self.given, np.float32(100))
        return made

    def spent(self, columns: Sequence[str]) -> F32:
        """Seconds by step of one kind, by the columns it is made of."""
        kinds = {USER: self.user, SYSTEM: self.system, SOFTIRQ: self.softirq, WAIT: self.wait,
                 STEAL: self.stolen}  # fmt: skip
        return self.kernel if tuple(columns) == KERNEL else kinds[tuple(columns)]

    def held(self, limit: float, lasting: float = 0.0) -> list[Hold]:
        """Where a core spent `limit` per cent or more in the kernel, for so many seconds."""
        return self.above(self.kernel, limit, lasting)

    def above(self, spent: F32, limit: float, lasting: float) -> list[Hold]:
        """The same of other seconds by step: core by core, in the order of time."""
        found = [
            run for run in runs(self.times, self.percent(spent) >= limit) if run.lasts(lasting)
        ]
        return [
            Hold(self.cores[run.row], run.start, run.end, float(self.wall[run.last]), shares)
            for run, shares in zip(found, self._shares_of(found), strict=True)
        ]

    def _shares_of(self, found: Sequence[Run]) -> list[Shares]:
        """`shares` of many runs at once: a night may have many thousands."""
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
        """Its steps, for `runs`."""
        return Series(self.start, self.end, self.wall, [], self.given)

    def part(self, steps: slice) -> CoreSeries:
        """The same cores over some of the steps."""
        times = (self.start[steps], self.end[steps], self.wall[steps])
        kinds = (self.user, self.system, self.softirq, self.wait, self.stolen, self.given)
        user, system, softirq, wait, stolen, given = (kind[:, steps] for kind in kinds)
        return CoreSeries(*times, self.cores, user, system, softirq, wait, stolen, given)

    def shares(self, row: int, steps: slice) -> Shares | None:
        """One core over some steps; `None` where nothing is known of them."""
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
        """Every core over a span (monotonic seconds): the steps that touch it, whole."""
        steps = self.times.inside(start, end)
        found = {}
        for row, core in enumerate(self.cores):
            if cores is None or core in cores:
                shares = self.shares(row, steps)
                if shares is not None:
                    found[core] = shares
        return found


class CoreMeter:
    """Makes the step that leads to each reading, as readings come in."""

    def __init__(self) -> None:
        self._stepper = Stepper()

    def add(self, batch: Batch[CoreTimes]) -> CoreSeries | None:
        """The step up to this reading; `None` of the first one."""
        columns = columns_of((batch,), CoreTimes, PARTS)
        if columns is None:
            return None
        made = from_steps(self._stepper.add(columns))
        return made if len(made.end) else None


class HeldSoFar:
    """The holds of readings that come in pieces: one that goes on is joined to what it was."""

    def __init__(self) -> None:
        self._last: dict[int, Hold] = {}

    def add(self, piece: CoreSeries, limit: float) -> list[Hold]:
        """Every hold in this piece, with the part of it that lies in those before."""
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
    """Of every step of the window; `None` where cores were never read twice."""
    return window.keep("core_series", lambda: from_columns(window.columns(CoreTimes, PARTS)))


def from_columns(pieces: Iterable[Columns]) -> CoreSeries | None:
    """The same of columns that come in pieces."""
    stepper = Stepper()
    # A piece of one reading has no step, but may know a core that the others do not.
    parts = [from_steps(stepper.add(piece)) for piece in pieces]
    return _joined(parts) if any(len(part.end) for part in parts) else None


def from_steps(steps: Steps) -> CoreSeries:
    """Seconds by kind of the steps of core times."""
    moved, seconds = steps.moved, steps.seconds

    def part(names: Sequence[str]) -> F64:
        found: F64 = moved[names[0]] / 1000
        for name in names[1:]:
            found += moved[name] / 1000
        return found

    def known_part(names: Sequence[str]) -> F64:
        """The same where a part that is unknown counts nothing."""
        every = [moved[name] for name in names]
        return sum(np.where(np.isnan(one), 0.0, one) for one in every) / 1000  # type: ignore[return-value]

    user, system, softirq = part(USER), part(SYSTEM), part(SOFTIRQ)
    needed = user + system + softirq  # NaN where one of them is unknown
    wait = known_part(WAIT)
    spent = needed + wait + known_part(IDLE)
    lost = (spent >= ENOUGH * seconds) & (spent < WHOLE * seconds)
    given = np.where(lost, spent, seconds)
    parts = [user, system, softirq, wait, moved["steal_ms"] / 1000]
    unknown = np.isnan(needed)
    if unknown.any():
        parts = [np.where(unknown, np.nan, array) for array in parts]
    cores = [int(thing[0]) for thing in steps.things]  # type: ignore[call-overload]
    return CoreSeries(
        steps.start,
        steps.end,
        steps.wall,
        cores,
        *(array.astype(np.float32) for array in (*parts, given)),
    )


def _joined(parts: list[CoreSeries]) -> CoreSeries:
    if len(parts) == 1:
        return parts[0]
    cores = sorted({core for part in parts for core in part.cores})
    rows = [np.searchsorted(cores, part.cores) for part in parts]
    number = sum(len(part.end) for part in parts)
    start = np.concatenate([part.start for part in parts])
    end = np.concatenate([part.end for part in parts])
    wall = np.concatenate([part.wall for part in parts])
    kinds: list[list[F32]] = [
        [part.user for part in parts],
        [part.system for part in parts],
        [part.softirq for part in parts],
        [part.wait for part in parts],
        [part.stolen for part in parts],
        [part.given for part in parts],
    ]
    parts.clear()  # twelve hours would be there twice

    same = all(np.array_equal(mine, range(len(cores))) for mine in rows)

    def stitched(pieces: list[F32]) -> F32:
        if same:
            made: F32 = np.concatenate(pieces, axis=1)
        else:
            made = np.full((len(cores), number), np.nan, np.float32)
            at = 0
            for mine, piece in zip(rows, pieces, strict=True):
                made[mine, at : at + piece.shape[1]] = piece
                at += piece.shape[1]
        pieces.clear()
        return made

    return CoreSeries(start, end, wall, cores, *map(stitched, kinds))
