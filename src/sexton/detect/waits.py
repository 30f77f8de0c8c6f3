"""Waits of a NIC queue's poll: measured by the probe, reported by the driver, or inferred.

**Measured.** The probe reports per core the longest wait that ended since the previous reading, and
how long one has been in progress. Several readings see one long wait: first in progress and longer
each time, then ended; here they become one. Where the probe was running it overrides any inference
from counters: a core that polled nothing while nothing waited starved no queue.

**Reported.** Lines of the driver in the kernel log.

**Inferred.** `/proc/softirqs` counts the runs of NET_RX per core. A core that serves a queue,
spends whole steps in system time and does not run NET_RX once in them has not polled that queue. A
queue without packets looks the same, so a silence counts as starvation only if something requested
a poll: the queue's interrupt fired meanwhile, or the core usually polls so often, while the
interface's traffic goes on, that chance is excluded. Any other silence needs the probe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np

from sexton.detect import kernel_log, nics
from sexton.detect.kernel_log import DAY_S, Line
from sexton.detect.registry import Threshold
from sexton.model.finding import Evidence
from sexton.model.rows.cpu import (
    CoreTimes,
    Interrupt,
    ProbeCost,
    SoftirqCount,
    SoftirqWait,
    SoftnetCpu,
)
from sexton.model.rows.net import NetDevice, Nic, NicQueue
from sexton.model.text import seconds as duration
from sexton.model.window import Batch, Columns, Key, Window
from sexton.series.catalogue import SOFTIRQ_PENDING
from sexton.series.cores import Overlap, core_series
from sexton.series.rates import Run, Steps, lasts, runs, steps_of, totals_in
from sexton.series.steps import Step, known_sum, steps

_FIELDS = ("longest_us", "pending_us")

WAIT = Threshold(
    "wait", 1, "s without a poll", "a busy core polls within 10 ms; a second is not queueing"
)
GRAVE = Threshold(
    "grave wait", 5, "s without a poll", "ENA and the kernel reset a device after 5 s"
)
#: Lines in which a driver says how long a queue was not polled.
FAMILIES = ("nic_starved", "nic_reset")
SOURCE = "bpf(2): softirq_raise, softirq_entry"
_NORMAL = SOFTIRQ_PENDING.normal
_PAUSED = "the whole machine was paused (an overcommitted hypervisor)"


class MeasuredWait(NamedTuple):
    """One softirq vector that waited for one core, in monotonic seconds.

    `is_over` is false if it was still waiting at the last reading of the probe: then `seconds` is a
    lower bound.
    """

    core: int
    vector: str
    seconds: float
    end: float
    is_over: bool

    @property
    def start(self) -> float:
        return self.end - self.seconds

    def is_part_of(self, seconds: float, mono_s: float) -> bool:
        """Whether a wait of this length, read at `mono_s`, must be this one, still in progress at
        its last reading: it began before that reading, and not before this wait did."""
        since = mono_s - self.end
        return since <= seconds and lasts(since + self.seconds, seconds)


def measured_waits(window: Window, at_least_s: float) -> list[MeasuredWait]:
    """Waits of at least that length, the longest first."""
    return sorted(_waits(window, at_least_s * 1e6), key=lambda wait: -wait.seconds)


def _waits(window: Window, floor_us: float) -> Iterator[MeasuredWait]:
    under_way: dict[tuple[int, str], MeasuredWait] = {}
    for mono_s, follows, cells in _long_waits(window, floor_us):
        before, under_way = under_way, {}
        for cell in cells:
            place = (cell.core, cell.vector)
            known = before.get(place)
            longest_us, pending_us = cell.longest_us or 0, cell.pending_us or 0
            waited_us = pending_us if cell.longest_us is None else longest_us
            if known is not None and (follows or known.is_part_of(waited_us / 1e6, mono_s)):
                del before[place]
            else:
                known = None  # its end was not seen
            # What ended did so before the wait in progress began.
            began = mono_s - pending_us / 1e6
            ended = began
            if known is not None and cell.longest_us is not None:
                # Only one wait is in progress at a time, so the known one has ended.
                longest_us = max(longest_us, int(known.seconds * 1e6))
                ended = min(known.start + longest_us / 1e6, began)
            elif known is not None and pending_us < known.seconds * 1e6:
                yield known  # its end was missed
            elif known is not None:
                began = known.start  # by the first reading of it
            if longest_us >= floor_us:
                yield MeasuredWait(*place, longest_us / 1e6, ended, True)
            if pending_us >= floor_us:
                pending_s = pending_us / 1e6
                under_way[place] = MeasuredWait(*place, pending_s, began + pending_s, False)
        yield from before.values()
    yield from under_way.values()


class _Cell(NamedTuple):
    """One core and vector at one reading."""

    core: int
    vector: str
    longest_us: int | None
    pending_us: int | None


def _long_waits(window: Window, floor_us: float) -> Iterator[tuple[float, bool, list[_Cell]]]:
    """Readings with a wait of that length, and those that follow one in progress.

    Searched by columns: a night has millions of rows without a long wait.
    """
    last: dict[Key, bool] = {}
    for piece in window.columns(SoftirqWait, _FIELDS):
        longest, pending = (piece.values[name] for name in _FIELDS)
        started = np.array([last.get(thing, False) for thing in piece.things], np.bool_)
        waits = pending >= floor_us
        after = np.concatenate([started[:, None], waits[:, :-1]], axis=1)
        relevant = (longest >= floor_us) | waits | after
        last = dict(zip(piece.things, waits[:, -1].tolist(), strict=True))
        for at in np.flatnonzero(relevant.any(axis=0)).tolist():
            cells = [
                _cell(piece.things[row], longest[row, at], pending[row, at])
                for row in np.flatnonzero(relevant[:, at]).tolist()
            ]
            yield float(piece.mono[at]), bool(piece.follows[at]), cells


def _cell(thing: Key, longest: float, pending: float) -> _Cell:
    core, vector = thing
    return _Cell(int(str(core)), str(vector), _known(longest), _known(pending))


def _known(value: float) -> int | None:
    return None if np.isnan(value) else int(value)


def longest_wait(window: Window) -> MeasuredWait | None:
    """The longest wait in the window, however short."""
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
    """Spans in which the probe was running (monotonic seconds), and why it was paused."""

    spans: tuple[tuple[float, float], ...]
    why_not: str

    @property
    def seconds(self) -> float:
        return sum(end - start for start, end in self.spans)

    def saw(self, start: float, end: float) -> bool:
        """Whether it was running all that time and before: a wait already in progress when the
        probe starts may raise no further softirq to be seen by."""
        return any(began < start and ended >= end for began, ended in self.spans)


def watch(window: Window) -> Watch:
    """When the probe was running in this window; consecutive readings make one span."""
    spans: list[tuple[float, float]] = []
    why = ""
    batches: Sequence[Batch[ProbeCost]] = window.batches(ProbeCost) or ()
    for earlier, later in pairwise(batches):
        for row in later.rows if later.follows else ():
            if not row.watched:
                why = row.why or why
            elif spans and spans[-1][1] == earlier.mono_s:
                spans[-1] = spans[-1][0], later.mono_s
            else:
                spans.append((earlier.mono_s, later.mono_s))
    return Watch(tuple(spans), why)


def of_a_wait(wait: MeasuredWait) -> Evidence:
    """One wait as evidence."""
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
    """The longest wait as evidence, if none was too long."""
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


class LoggedWait(NamedTuple):
    """One log line about a queue that NAPI did not serve."""

    line: Line
    nic: str | None
    seconds: float
    scheduled: int | None

    @property
    def queue(self) -> int | None:
        return self.line.number("queue")

    @property
    def is_recent(self) -> bool:
        return self.line.age_s is None or self.line.age_s <= DAY_S


def logged_waits(window: Window) -> list[LoggedWait]:
    """Every wait in the log, in its order."""
    lines = kernel_log.lines(window, FAMILIES)
    name = nics.namer(window.latest(Nic) or (), lines)
    found: list[LoggedWait] = []
    for line in lines:
        napi_us = line.number("napi_us")
        if napi_us is not None:
            found.append(LoggedWait(line, name(line), napi_us / 1e6, line.number("napi_scheduled")))
        elif line.text("reason") == "SUSPECTED_POLL_STARVATION" and not _follows(line, found):
            # Logged only past the driver's limit; the line with the full length is gone.
            found.append(LoggedWait(line, name(line), GRAVE.value, 1))
    # Only some lines about a stall say whether NAPI was scheduled.
    scheduled = {
        (wait.nic, wait.queue): wait.scheduled for wait in found if wait.scheduled is not None
    }
    return [
        wait._replace(scheduled=scheduled.get((wait.nic, wait.queue)))
        if wait.scheduled is None
        else wait
        for wait in found
    ]


def _follows(line: Line, found: Sequence[LoggedWait]) -> bool:
    """Is it a second line about the last wait found?"""
    if not found or found[-1].seconds < WAIT.value:
        return False
    before = found[-1].line.age_s
    return before is None or line.age_s is None or before - line.age_s <= WAIT.value


#: NET_RX runs to expect at the lowest rate in the rest of the window; with fewer it may be chance.
_EXPECTED = 100.0
#: The same at the average rate since boot: with fewer, no poll was due at all.
_IMAGINABLE = 10.0


class Silence(NamedTuple):
    """A core in the kernel that did not poll from `start` to `end` (monotonic seconds).

    `interrupts` is how often its queues' interrupts fired in that time, `packets` what their
    interfaces received through other cores, `expected` how many polls were due at the lowest rate
    in the rest of the window and `imaginable` at the average rate since boot.
    """

    core: int
    start: float
    end: float
    interrupts: int
    packets: int
    expected: float
    imaginable: float
    queues: tuple[NicQueue, ...]

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def is_starved(self) -> bool:
        """Was a poll requested that did not run?"""
        return self.interrupts > 0 or (self.expected >= _EXPECTED and self.packets > 0)


def can_tell(window: Window) -> bool:
    """Were all tables read that show silences?"""
    edges = [window.bounds_of(kind) for kind in (CoreTimes, SoftirqCount)]
    twice = all(edge is not None and edge[1] > edge[0] for edge in edges)
    return twice and window.read(NicQueue)


def silences(window: Window, share_percent: float) -> list[Silence]:
    """When a queue's core did not poll although a poll may have been due, the longest first."""
    return window.keep(("silences", share_percent), lambda: _silences(window, share_percent))


def _silences(window: Window, share_percent: float) -> list[Silence]:
    served = nics.serving_cores(window)
    series = core_series(window)
    if not served or series is None or not can_tell(window):
        return []
    # A mean over several steps is never above all of them: most cores need no closer look.
    highest = np.fmax.reduce(series.percent(series.system), axis=1, initial=0.0)
    busy = {core for core, most in zip(series.cores, highest, strict=True) if most >= share_percent}
    busy &= {*served}
    counts = list(window.columns(SoftirqCount, ("net_rx",), lambda key: key[0] in busy))
    polls = steps_of(counts)
    overlap = Overlap(series, polls.start, polls.end)
    found: list[Silence] = []
    for row, thing in enumerate(polls.things):
        core = cast("int", thing[0])
        ran = polls.moved["net_rx"][row]
        silent = (ran == 0) & (overlap.system(core) >= share_percent)
        for run in runs(polls, silent[None]):
            made = _silence(window, (core, served[core]), run, (polls, row), counts)
            if made.is_starved or made.imaginable >= _IMAGINABLE:
                found.append(made)
    return sorted(found, key=lambda silence: -silence.seconds)


def _counted(pieces: Sequence[Columns], core: int, mono_s: float) -> float:
    """Polls of a core since boot, by the last reading at or before a time; 0 if unknown."""
    for piece in reversed(pieces):
        at = int(np.searchsorted(piece.mono, mono_s, "right")) - 1
        if at >= 0:
            if (core,) not in piece.things:
                return 0.0
            return float(np.nan_to_num(piece.values["net_rx"][piece.things.index((core,)), at]))
    return 0.0


def _silence(
    window: Window,
    served: tuple[int, tuple[NicQueue, ...]],
    run: Run,
    polled: tuple[Steps, int],
    counts: Sequence[Columns],
) -> Silence:
    core, queues = served
    polls, row = polled
    start, end = run.start, run.end
    outside = (polls.end <= start) | (polls.start >= end)
    rates = polls.rate("net_rx")[row, outside]
    rates = rates[~np.isnan(rates)]
    return Silence(
        core=core,
        start=start,
        end=end,
        interrupts=_interrupts(window, core, queues, run),
        packets=_packets(window, {queue.nic for queue in queues}, run),
        # The lowest rate and not the average, since traffic comes in bursts; of at least two steps.
        expected=float(rates.min()) * (end - start) if len(rates) > 1 else 0.0,
        imaginable=_counted(counts, core, start) / max(start, 1.0) * (end - start),
        queues=queues,
    )


def _interrupts(window: Window, core: int, queues: Sequence[NicQueue], run: Run) -> int:
    """How often the queues' interrupts are known to have fired on the core in the silence."""
    irqs = {str(row.irq) for row in queues}
    total = 0
    read = window.between(Interrupt, run.start, run.end)
    for irq, step in steps(read, lambda row: row.irq):
        cpus = step.after.cpus
        if irq in irqs and core in cpus and step.before.cpus == cpus and _is_inside(step, run):
            fired = step.delta_at("counts", cpus.index(core))
            total += 0 if fired is None else fired
    return total


def _packets(window: Window, names: Collection[str], run: Run) -> int:
    """Packets that these interfaces are known to have received inside the silence."""
    read = window.between(NetDevice, run.start, run.end)
    found = known_sum(
        step.delta("rx_packets")
        for name, step in steps(read, lambda row: row.name)
        if name in names and _is_inside(step, run)
    )
    return 0 if found is None else found


def _is_inside(step: Step[Any], run: Run) -> bool:
    """Whether all of a step is inside: one that begins before the silence may include an interrupt
    that was served in time, since the files are read a moment apart."""
    return step.start_mono >= run.start and step.end_mono <= run.end


#: Counters of `/proc/net/softnet_stat` for packets that were dropped or had to wait.
LOSSES = ("dropped", "time_squeeze")


def backlog(window: Window) -> Iterator[Evidence]:
    """Drops and cut-short polls on the queues' cores: context, not a sign of starvation."""
    cores = nics.serving_cores(window)
    every = totals_in(window, SoftnetCpu, *LOSSES) or {}
    backlogs = [found for (core,), found in every.items() if not cores or core in cores]
    where = "cores that serve a queue" if cores else "all cores"
    for field, what, normal in (
        ("dropped", "packets dropped from the backlog of", "0"),
        ("time_squeeze", "polls cut short (busy, not starved) on", "a few a second"),
    ):
        total = int(sum(counters.get(field, 0.0) for counters in backlogs))
        if backlogs and (total or field == "dropped"):
            yield Evidence(
                f"{what} {where}",
                f"{total:,}",
                normal,
                f"in {duration(window.seconds)}",
                "/proc/net/softnet_stat",
                total,
                "another window would show other traffic",
            )
