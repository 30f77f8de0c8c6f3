"""Times at which the queried event occurred.

An interface: when it was reset. A core: when it was held in the kernel, or the kernel reported a
lockup; the moment is the *end* of the hold, so the seconds before it are those in which it was
held. A function: likewise, when a core was caught in it. A unit: when its main process ended. A
cgroup: when one died there. A job: when its death was marked. A moment is itself; if it was given
to the minute and something happened in that minute, then that. Everything else: when its findings
ended.

**Loops.** A unit that ends every ten seconds is not one episode, and there is no quiet half minute
between its ends to compare with. So a loop is compared with itself: the last quarter before each
end with as many seconds half way between two ends. Each end is then an event of its own. What goes
on throughout the loop is in both and is not found; that is what links are for. A loop so fast that
a quarter of its gap holds fewer than two readings is treated as one episode.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import NamedTuple

from sexton.detect import kernel_log
from sexton.detect.deaths import deaths
from sexton.detect.detectors.cpu import saturated_core, soft_lockups
from sexton.detect.kernel_log import Line
from sexton.detect.resets import logged
from sexton.detect.spread import median
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

#: Two tellings of one happening: the kernel's watchdog and the core's own times.
_SAME_S = 3.0
#: Samples of one second on one core: a fifth of it, of 97 in a second.
_CAUGHT = 20
_Found = Iterable[float]


def occasions(
    subject: Subject, window: Window, findings: Sequence[Finding], known: Sequence[float] = ()
) -> Occasions:
    """Its moments inside the window, oldest first; `findings` are those that concern it.

    `known` are monotonic moments from other sources: a long window does not hold every reading.
    """
    if subject.kind == "moment":
        return _moment(subject, window)
    name = shorten(subject.name, 60)
    one, many, found = {
        "nic": (f"reset of {name}", f"resets of {name}", _resets),
        "core": (f"hold of core {name}", f"holds of core {name}", _held),
        "unit": (f"end of {name}", f"ends of {name}", _ends),
        "cgroup": (f"death in {name}", f"deaths in {name}", _deaths),
        "job": (f"mark of {name}", f"marks of {name}", _marks),
        "function": (f"burst of {name}", f"bursts of {name}", _caught),
    }.get(subject.kind, ("", "", _nothing))
    moments = _inside(window, known or found(subject, window))
    if moments and subject.kind == "unit" and (more := _restarted(subject, window)) > len(moments):
        note = f"{more:,} restarts were counted; end times are known only for these"
        return Occasions(one, many, moments, note, partial=True)
    if moments:
        return Occasions(one, many, moments)
    ends = _inside(window, (window.mono(end) for end in _ends_of(window, findings)))
    if ends:
        words = f"finding about {subject.words}", f"findings about {subject.words}"
        return Occasions(*words, ends, "taken at the end of the finding")
    return Occasions(one or f"finding about {subject.words}", many, ())


def _inside(window: Window, found: _Found) -> tuple[Moment, ...]:
    """In order, each once, and only those that were recorded: a log remembers more."""
    kept: list[float] = []
    for mono in sorted(found):
        if window.start_mono <= mono <= window.end_mono and (not kept or mono > kept[-1]):
            kept.append(mono)
    return tuple(Moment(mono, window.wall(mono)) for mono in kept)


def _nothing(_subject: Subject, _window: Window) -> _Found:
    return ()


def _ends_of(window: Window, findings: Sequence[Finding]) -> Iterator[float]:
    """Of findings that did not last through the whole window."""
    for finding in findings:
        if finding.end is not None and finding.end < window.end - 1:
            yield finding.end


def _resets(subject: Subject, window: Window) -> _Found:
    return (mono for mono, name in resets(window) if printable(name or "") == subject.name)


def resets(window: Window) -> Iterator[tuple[float, str | None]]:
    """Every reset in the kernel log: when it began, and of which interface."""
    for burst in logged(window):
        mono = _mono(window, burst.lines[0])
        if mono is not None:
            yield mono, burst.name


def lockups(window: Window) -> Iterator[tuple[float, str | None]]:
    """Every lockup or stall: when it was first logged, and of which core."""
    lines = kernel_log.lines(window, soft_lockups.FAMILIES)
    for burst in kernel_log.bursts(lines, _core, soft_lockups.ONE_STALL.value):
        mono = _mono(window, burst.lines[0])
        if mono is not None:
            yield mono, burst.name


def _core(line: Line) -> str | None:
    return line.text("cpu")


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
    """Cores that the kernel held, and when each hold ended; `only` one of them where given."""
    for hold in saturated_core.holds(window):
        if only in (None, str(hold.core)):
            yield str(hold.core), hold.end


def _ends(subject: Subject, window: Window) -> _Found:
    """By systemd's own clock of each run that a reading saw, and by the journal's restarts."""
    exits: set[float] = set()
    delay_s = 0.0
    for unit in window.changes(Unit, ("main_exit_us", "restart_delay_us")):
        if printable(unit.name) == subject.name:
            delay_s = (unit.restart_delay_us or 0) / 1e6
            exits |= {unit.main_exit_us / 1e6} if unit.main_exit_us else set()
    marks = {row for row in window.all(RestartMark) or () if printable(row.unit) == subject.name}
    # The journal logs a restart when its delay is over: the end was that much earlier.
    ends = sorted(window.mono(row.wall_s) - delay_s for row in marks)
    ends = [*ends[:1], *(b for a, b in pairwise(ends) if b - a > _SAME_S)]
    seen = sorted(exits)
    return [*seen, *(end for end in ends if not _is_near(end, seen))]


def _restarted(subject: Subject, window: Window) -> int:
    """How often the unit was restarted in the window, less one: the last end may lie before it."""
    counted = restarts(window)
    return next((restart.count - 1 for name, restart in counted.items()
                 if printable(name) == subject.name), 0)  # fmt: skip


def _is_near(moment: float, others: Sequence[float]) -> bool:
    """Is one of these within `_SAME_S` of it? They are in order."""
    at = bisect_left(others, moment - _SAME_S)
    return at < len(others) and others[at] <= moment + _SAME_S


def _deaths(subject: Subject, window: Window) -> _Found:
    traced = deaths(window)
    for death in traced.all if traced is not None else ():
        if is_named(subject, "cgroup", printable(death.path)):
            yield death.died_s


def _caught(subject: Subject, window: Window) -> _Found:
    """Where seconds end in which one core was caught in the function a fifth of them or more."""
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
    """What was typed, or what happened in the minute that was typed."""
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


#: Readings are a second apart, and a rate needs two steps to be one.
_LEAST_BEFORE_S = 2.0
#: By the clock: most gaps differ from the middle one by less than this part of it. Windows before a
#: moment and half way to the next are an eighth of a gap apart.
_EVEN = 1 / 8
_MOST = 3 / 4


class Loop(NamedTuple):
    """How a loop is compared, and what its reader should know of that."""

    plan: Plan
    note: str


def loop_of(moments: Sequence[float]) -> Loop | None:
    """`None` where they are too few, too far apart, too irregular or too quick for it.

    >>> loop_of([10.0 * n for n in range(9)]).plan.before_s
    2.5
    >>> loop_of([60.0 * n for n in range(9)]) is loop_of([0.5 * n for n in range(9)]) is None
    True
    """
    gaps = [after - before for before, after in pairwise(sorted(moments))]
    if len(moments) < LEAST_EVENTS:
        return None
    gap = median(gaps)
    even = sum(abs(other - gap) <= _EVEN * gap for other in gaps)
    apart = 1.5 * Plan().before_s  # as far apart each is an episode by itself
    if gap > apart or gap / 4 < _LEAST_BEFORE_S or even < _MOST * len(gaps):
        return None
    plan = Plan(before_s=gap / 4, short_s=gap / 8, quiet_s=gap / 8, step_s=gap / 2, closer=False)
    note = (
        f"a loop, every {seconds(gap)}: the last {seconds(gap / 4)} before each time are compared"
        " with the middle of the gaps"
    )
    return Loop(plan, note)
