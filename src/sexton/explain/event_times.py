"""Times at which the queried event occurred.

An interface: when it was reset. A core: when it was held in the kernel, or the kernel reported a
lockup; the moment is the *end* of the hold, so the core was held in the seconds before it. A
function: likewise, when a core executed it. A unit: when its main process exited. A cgroup: when
one below it was removed. A job: when its death was marked. A moment: itself, or the event in that
minute if it was given to the minute. Everything else: when its findings ended.

**Loops.** A unit that exits every ten seconds is not one episode, and there is no quiet half minute
between exits to compare with. So a loop is compared with itself: the last quarter before each exit
with as many seconds half way between two exits. Each exit is then an event. What goes on throughout
the loop is in both and is not found; links find that. A loop so fast that a quarter of its gap has
fewer than two readings is treated as one episode.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import NamedTuple

import numpy as np

from sexton.detect import kernel_log
from sexton.detect.deaths import deaths
from sexton.detect.detectors.cpu import saturated_core, soft_lockups
from sexton.detect.kernel_log import Burst, Line
from sexton.detect.kubernetes.pods import pods
from sexton.detect.resets import logged
from sexton.explain.aligned.layout import LEAST_EVENTS, Plan
from sexton.explain.subject import is_named
from sexton.model.finding import Finding
from sexton.model.rows.recorder import Mark
from sexton.model.rows.trace import StackCount
from sexton.model.rows.unit import RestartMark, Unit
from sexton.model.text import printable, seconds, shorten
from sexton.model.why import Moment, Occasions, Subject
from sexton.model.window import Window
from sexton.series.restarts import restarts

#: Reports of the same event, by the kernel's watchdog and by the core's times, are this close.
_SAME_S = 3.0
#: A fifth of the 97 samples per second and core.
_CAUGHT = 20
_Found = Iterable[float]


def occasions(
    subject: Subject, window: Window, findings: Sequence[Finding], known: Sequence[float] = ()
) -> Occasions:
    """Its moments in the window, oldest first; `findings` are those about it.

    `known` are monotonic moments from other sources: a long window does not hold every reading.
    """
    if subject.kind == "moment":
        return _moment(subject, window)
    name = shorten(subject.name, 60)
    one, many, found = {
        "nic": (f"reset of {name}", f"resets of {name}", _resets),
        "core": (f"stall of core {name}", f"stalls of core {name}", _held),
        "unit": (f"exit of {name}", f"exits of {name}", _ends),
        "cgroup": (f"cgroup removal under {name}", f"cgroup removals under {name}", _deaths),
        "pod": (f"cgroup removal of {name}", f"cgroup removals of {name}", _deaths_of_pod),
        "job": (f"mark of {name}", f"marks of {name}", _marks),
        "function": (f"burst of {name}", f"bursts of {name}", _caught),
    }.get(subject.kind, ("", "", _nothing))
    moments = _inside(window, known or found(subject, window))
    counted = _restarted(subject, window) if moments and subject.kind == "unit" else 0
    if counted - 1 > len(moments):  # the first exit may lie before the window
        note = f"{counted:,} restarts were counted; exit times are known only for these"
        return Occasions(one, many, moments, note, partial=True)
    if moments:
        return Occasions(one, many, moments)
    ends = _inside(window, (window.mono(end) for end in _ends_of(window, findings)))
    if ends:
        words = f"finding about {subject.words}", f"findings about {subject.words}"
        return Occasions(*words, ends, "time: the end of the finding")
    return Occasions(one or f"finding about {subject.words}", many, ())


def _inside(window: Window, found: _Found) -> tuple[Moment, ...]:
    """Sorted, without repetitions, and only inside the window: a log goes back further."""
    kept: list[float] = []
    for mono in sorted(found):
        if window.start_mono <= mono <= window.end_mono and (not kept or mono > kept[-1]):
            kept.append(mono)
    return tuple(Moment(mono, window.wall(mono)) for mono in kept)


def _nothing(_subject: Subject, _window: Window) -> _Found:
    return ()


def _ends_of(window: Window, findings: Sequence[Finding]) -> Iterator[float]:
    """Ends of findings that did not last through the whole window."""
    for finding in findings:
        if finding.end is not None and finding.end < window.end - 1:
            yield finding.end


def _resets(subject: Subject, window: Window) -> _Found:
    return (mono for mono, name in resets(window) if printable(name or "") == subject.name)


def resets(window: Window) -> Iterator[tuple[float, str | None]]:
    """Every reset in the kernel log: when it began, and the interface."""
    return _beginnings(window, logged(window))


def lockups(window: Window) -> Iterator[tuple[float, str | None]]:
    """Every lockup or stall: when it was first logged, and the core."""
    lines = kernel_log.lines(window, soft_lockups.FAMILIES)
    stalls = kernel_log.bursts(lines, lambda line: line.text("cpu"), soft_lockups.ONE_STALL.value)
    return _beginnings(window, stalls)


def _beginnings(window: Window, bursts: Iterable[Burst]) -> Iterator[tuple[float, str | None]]:
    for burst in bursts:
        mono = _mono(window, burst.lines[0])
        if mono is not None:
            yield mono, burst.name


def _mono(window: Window, line: Line) -> float | None:
    if line.event.mono_us is not None:
        return line.event.mono_us / 1e6
    return None if line.wall_s is None else window.mono(line.wall_s)


def _held(subject: Subject, window: Window) -> _Found:
    ends = [end for core, end in holds(window, subject.name)]
    moments = [mono for mono, core in lockups(window) if core == subject.name]
    return [
        *ends,
        *(moment for moment in moments if all(abs(moment - end) > _SAME_S for end in ends)),
    ]


def holds(window: Window, only: str | None = None) -> Iterator[tuple[str, float]]:
    """Cores that the kernel held, and when each hold ended; of `only` one core if given."""
    for hold in saturated_core.holds(window):
        if only in (None, str(hold.core)):
            yield str(hold.core), hold.end


def _ends(subject: Subject, window: Window) -> _Found:
    """By systemd's exit times of the runs that were read, and by restarts in the journal."""
    exits: set[float] = set()
    delay_s = 0.0
    for unit in window.changes(Unit, ("main_exit_us", "restart_delay_us")):
        if printable(unit.name) == subject.name:
            delay_s = (unit.restart_delay_us or 0) / 1e6
            exits |= {unit.main_exit_us / 1e6} if unit.main_exit_us else set()
    marks = {row for row in window.all(RestartMark) or () if printable(row.unit) == subject.name}
    # The journal logs a restart after its delay: the exit was that much earlier.
    ends = sorted(window.mono(row.wall_s) - delay_s for row in marks)
    ends = [*ends[:1], *(b for a, b in pairwise(ends) if b - a > _SAME_S)]
    seen = sorted(exits)
    return [*seen, *(end for end in ends if not _is_near(end, seen))]


def _restarted(subject: Subject, window: Window) -> int:
    """Restarts of the unit in the window."""
    counted = restarts(window)
    mine = (found for name, found in counted.items() if printable(name) == subject.name)
    return next((found.recent for found in mine), 0)


def _is_near(moment: float, others: Sequence[float]) -> bool:
    """Is one of these within `_SAME_S` of it? They are sorted."""
    at = bisect_left(others, moment - _SAME_S)
    return at < len(others) and others[at] <= moment + _SAME_S


def _deaths(subject: Subject, window: Window) -> _Found:
    traced = deaths(window)
    for death in traced.all if traced is not None else ():
        if is_named(subject, "cgroup", printable(death.path)):
            yield death.died_s


def _deaths_of_pod(subject: Subject, window: Window) -> _Found:
    traced, named = deaths(window), pods(window)
    for death in traced.all if traced is not None and named else ():
        part = named.of(death.path)
        if part is not None and is_named(subject, "pod", printable(part.name)):
            yield death.died_s


def _caught(subject: Subject, window: Window) -> _Found:
    """Ends of the seconds in which one core spent a fifth or more in the function."""
    most: dict[int, Counter[int]] = {}
    for row in window.latest(StackCount) or ():
        if subject.name in map(printable, row.frames):
            most.setdefault(row.second_mono, Counter())[row.cpu] += row.samples
    busy = sorted(at for at, cores in most.items() if max(cores.values()) >= _CAUGHT)
    return [at + 1.0 for at, then in zip_longest(busy, busy[1:]) if then != at + 1]


def _marks(subject: Subject, window: Window) -> _Found:
    for batch in window.batches(Mark) or ():
        if any(printable(row.text) == subject.name for row in batch.rows):
            yield batch.mono_s


def _moment(subject: Subject, window: Window) -> Occasions:
    """The time that was typed, or the event in the minute that was typed."""
    start = window.mono(subject.wall_s or 0.0)
    events = [
        *((mono, f"{printable(name or 'a NIC')} was reset") for mono, name in resets(window)),
        *((mono, f"core {core or '?'} locked up") for mono, core in lockups(window)),
        *((batch.mono_s, f"marked: {printable(batch.rows[0].text)}")
          for batch in window.batches(Mark) or () if batch.rows),
        *((end, f"core {core} had been held") for core, end in holds(window)),
    ]  # fmt: skip
    inside = [event for event in events if start <= event[0] <= start + subject.lasts_s]
    if subject.lasts_s and inside:
        mono, what = inside[0]
        note = f"the second of {subject.name} in which {shorten(what, 80)}"
        return Occasions("moment", "moments", (Moment(mono, window.wall(mono)),), note)
    return Occasions("moment", "moments", (Moment(start, subject.wall_s or 0.0),))


#: Readings are a second apart, and a rate needs two steps.
_LEAST_BEFORE_S = 2.0
#: Periodic: most gaps differ from the median by less than this part of it. The windows before a
#: moment and half way to the next are an eighth of a gap apart.
_EVEN = 1 / 8
_MOST = 3 / 4


class Loop(NamedTuple):
    """How a loop is compared, and a note about it for the reader."""

    plan: Plan
    note: str


def loop_of(moments: Sequence[float]) -> Loop | None:
    """None if the moments are too few, too far apart, too irregular or too close together.

    >>> loop_of([10.0 * n for n in range(9)]).plan.before_s
    2.5
    >>> loop_of([60.0 * n for n in range(9)]) is loop_of([0.5 * n for n in range(9)]) is None
    True
    """
    gaps = [after - before for before, after in pairwise(sorted(moments))]
    if len(moments) < LEAST_EVENTS:
        return None
    gap = float(np.median(gaps))
    even = sum(abs(other - gap) <= _EVEN * gap for other in gaps)
    apart = 1.5 * Plan().before_s  # beyond this, each is an episode of its own
    if gap > apart or gap / 4 < _LEAST_BEFORE_S or even < _MOST * len(gaps):
        return None
    plan = Plan(before_s=gap / 4, short_s=gap / 8, quiet_s=gap / 8, step_s=gap / 2, closer=False)
    note = (
        f"a loop, every {seconds(gap)}: the last {seconds(gap / 4)} before each time are compared"
        " with the middle of the gaps"
    )
    return Loop(plan, note)
