"""The poll of a NIC queue waited for its core, and the packets waited with it.

**What is seen.** The driver's own measure in the kernel log: how long since NAPI last ran for a
queue, and whether it was scheduled. ``napi scheduled: 1`` means asked for and not run: starved.
``napi scheduled: 0`` means that nobody asked: an interrupt was lost, which is another illness and
is said so. Then ENA's counter ``suspected_poll_starvation``. And live, without a probe: a core that
serves a queue, spends whole steps in system time and does not run NET_RX once in them
(`/proc/softirqs`), while the queue's interrupt fires, or while the interface receives through other
cores and this one polls at least a hundred times in such a time otherwise.

**Why it hurts.** A queue that is not polled neither receives nor frees what it has sent. After 5 s
the driver's watchdog takes the whole device down and up again.

**What would make it wrong.** Threaded NAPI (``/sys/class/net/*/threaded``) polls without NET_RX.
Drivers older than ENA 2.8 do not say whether NAPI was scheduled. `time_squeeze` is not starvation:
there the poll ran and had too much to do; it is shown and turns nothing. The live part sees only
waits of a second and more that were total; shorter ones need a probe. A held core that polls
nothing, and that nothing asked to, is *unknown*: a queue without packets looks the same.

**Check by hand.** ``dmesg -T | grep -i napi``; ``grep NET_RX /proc/softirqs`` twice, at the core of
the queue; every single wait, in microseconds, with ``sudo bpftrace -e
'tracepoint:irq:softirq_raise /args->vec == 3 && !@raised[cpu]/ { @raised[cpu] = nsecs }
tracepoint:irq:softirq_entry /args->vec == 3 && @raised[cpu]/
{ @wait_us = hist((nsecs - @raised[cpu]) / 1000); delete(@raised[cpu]) }'``.

**What to do.** Find what held the core (`saturated_core`) and cure that. Until then keep the
queue's interrupt off the core that is held: ``echo CORE > /proc/irq/N/smp_affinity_list``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sexton.detect import kernel_log, nics, silent_polls
from sexton.detect.kernel_log import DAY_S, Line
from sexton.detect.registry import detector, missing, not_applicable, unknown
from sexton.detect.silent_polls import Silence
from sexton.detect.softnet import backlog
from sexton.detect.threshold import Threshold
from sexton.model.cpu import SoftirqCount
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.net import Nic, NicQueue
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window

WAIT = Threshold(
    "wait", 1, "s without a poll", "a busy core polls within 10 ms; a second is no queueing"
)
GRAVE = Threshold(
    "grave wait", 5, "s without a poll", "ENA and the kernel reset a device after 5 s"
)
HELD = Threshold(
    "held core", 90, "% in system time", "less leaves the softirq room to run in between"
)

PROBE = (
    "sudo bpftrace -e 'tracepoint:irq:softirq_raise /args->vec == 3 && !@raised[cpu]/"
    " { @raised[cpu] = nsecs } tracepoint:irq:softirq_entry /args->vec == 3 && @raised[cpu]/"
    " { @wait_us = hist((nsecs - @raised[cpu]) / 1000); delete(@raised[cpu]) }'"
)
COUNTER = "suspected_poll_starvation"
_SHOWN = 8


class _Wait(NamedTuple):
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


@detector(thresholds=(WAIT, GRAVE, HELD))
def detect(window: Window) -> Finding:
    """The longest wait the driver told of, or the longest silence seen."""
    real = nics.physical(window)
    if real == ():
        return not_applicable("starved_napi", "no physical network interface here")
    counters = nics.counters(window, (COUNTER,))
    live = silent_polls.can_tell(window)
    lacking = list(kernel_log.lacking(window))
    if not live:
        lacking += _lacks_live(window)
    if not live and not counters and not kernel_log.was_read(window):
        if real is None:
            lacking.append(missing(window.why_missing(Nic)))
        what = "no kernel log, no driver counter and no live view of the polls"
        return unknown("starved_napi", what, tuple(lacking))
    waits = _waits(window)
    starved = [each for each in waits if each.scheduled != 0 and each.seconds >= WAIT.value]
    held = [
        each
        for each in silent_polls.silences(window, HELD.value)
        if each.seconds >= WAIT.value * 0.9
    ]
    silent = [each for each in held if each.is_starved]
    counted = [each for each in counters if each.value]
    if starved or silent or counted:
        return _starved(window, starved, silent, (counted, lacking))
    if held:
        return _unasked(held[0], lacking)
    return _fed(window, waits, live, lacking)


def _unasked(silence: Silence, lacking: Sequence[Missing]) -> Finding:
    """Held and silent, and nothing tells whether a packet was waiting."""
    row = silence.queues[0]
    summary = (
        f"core {silence.core} was held for {duration(silence.seconds)} and did not poll"
        f" {row.nic}:{row.queue} once; whether a packet waited cannot be told"
    )
    probe = Missing("how long every single poll waits, while it happens", PROBE)
    return unknown("starved_napi", summary, (*lacking, probe))


def _lacks_live(window: Window) -> list[Missing]:
    unread = [kind for kind in (NicQueue, SoftirqCount) if window.batches(kind) is None]
    if unread:
        return [missing(window.why_missing(kind)) for kind in unread]
    return [Missing("two readings of softirqs and core times", "sexton diagnose --seconds 10")]


def _waits(window: Window) -> list[_Wait]:
    lines = kernel_log.lines(window, ("nic_starved", "nic_reset"))
    name = nics.namer(window, lines)
    found = []
    for line in lines:
        napi_us = line.number("napi_us")
        if napi_us is not None:
            found.append(_Wait(line, name(line), napi_us / 1e6, line.number("napi_scheduled")))
        elif line.text("reason") == "SUSPECTED_POLL_STARVATION" and not _follows(line, found):
            # The driver says so only past its limit; how long in all was in a line now gone.
            found.append(_Wait(line, name(line), GRAVE.value, 1))
    # Some formats say whether NAPI was scheduled, others of the same stall do not.
    told = {(each.nic, each.queue): each.scheduled for each in found if each.scheduled is not None}
    return [
        _Wait(each.line, each.nic, each.seconds, told.get((each.nic, each.queue)))
        if each.scheduled is None
        else each
        for each in found
    ]


def _follows(line: Line, found: Sequence[_Wait]) -> bool:
    """Is it the second sentence about a wait that was just told of?"""
    if not found or found[-1].seconds < WAIT.value:
        return False
    before = found[-1].line.age_s
    return before is None or line.age_s is None or before - line.age_s <= WAIT.value


def _fed(window: Window, waits: Sequence[_Wait], live: bool, lacking: Sequence[Missing]) -> Finding:
    evidence = []
    reach = kernel_log.reach(window)
    lost = [each for each in waits if each.scheduled == 0 and each.seconds >= WAIT.value]
    if reach is not None:
        evidence.append(
            Evidence(
                "queues starved by the driver's own measure",
                "0",
                "0",
                reach.words,
                reach.origin,
                0,
                reach.wrong_if or "this driver does not tell",
            )
        )
    if lost:
        worst = max(lost, key=lambda each: each.seconds)
        evidence.append(
            Evidence(
                f"{worst.nic or 'a NIC'} queue {worst.queue}: NAPI was not even scheduled",
                f"{worst.seconds:.1f} s",
                "< 0.01 s",
                "s since NAPI ran",
                "kernel log",
                worst.seconds,
                "an idle queue has no reason to be polled",
            )
        )
    if live:
        evidence.append(
            Evidence(
                "queue cores held and silent",
                "0",
                "0",
                f"in {duration(window.seconds)}",
                "/proc/softirqs, /proc/stat",
                0,
                "waits shorter than a second are not seen without a probe",
            )
        )
    evidence += backlog(window)
    summary = "no NIC queue waited for its core"
    if lost:
        summary += f"; {len(lost)} waited for an interrupt that did not come, which is not starving"
    probe = Missing("single waits below a second", PROBE)
    return Finding(
        "starved_napi",
        Verdict.ABSENT,
        Severity.INFO,
        summary,
        evidence=tuple(evidence) or (_nothing_counted(),),
        missing=(*lacking, probe),
    )


def _nothing_counted() -> Evidence:
    wrong_if = "the driver was loaded again since"
    return Evidence(COUNTER, "0", "0", "since the driver was loaded", "ethtool -S", 0, wrong_if)


def _starved(
    window: Window,
    starved: Sequence[_Wait],
    silent: Sequence[Silence],
    rest: tuple[Sequence[nics.Counter], list[Missing]],
) -> Finding:
    counted, lacking = rest
    recent = [each for each in starved if each.is_recent]
    worst = max(recent or starved, key=lambda each: each.seconds, default=None)
    places = _places(window, recent or starved, silent)
    names = dict.fromkeys(each.nic for each in starved if each.nic is not None)
    names |= dict.fromkeys(row.nic for each in silent for row in each.queues)
    names |= dict.fromkeys(each.nic for each in counted)
    start, end = _interval(window, worst, silent)
    if silent or not starved:
        lacking.append(Missing("how long every single poll waited", PROBE))
    return Finding(
        "starved_napi",
        Verdict.PRESENT,
        _severity(window, recent, silent, counted),
        _summary(worst, silent, places, counted),
        entities={
            "nic": tuple(names),
            "queue": tuple(place.queue for place in places),
            "core": tuple(dict.fromkeys(core for place in places for core in place.cores)),
            "irq": tuple(dict.fromkeys(irq for place in places for irq in place.irqs)),
        },
        start=start,
        end=end,
        evidence=(*_evidence(worst, silent, counted), *backlog(window)),
        missing=tuple(lacking),
    )


def _severity(
    window: Window,
    recent: Sequence[_Wait],
    silent: Sequence[Silence],
    counted: Sequence[nics.Counter],
) -> Severity:
    # A line that does not say whether NAPI was scheduled may tell of a lost interrupt.
    sure = [each.seconds for each in recent if each.scheduled == 1]
    longest = max([*sure, *(each.seconds for each in silent)], default=0.0)
    if longest >= GRAVE.value or any(each.moved for each in counted):
        return Severity.CRITICAL
    reach = kernel_log.reach(window)
    is_old = reach is not None and reach.covers_a_day
    if recent or silent or (counted and not is_old):
        return Severity.WARNING
    return Severity.INFO


def _places(window: Window, waits: Sequence[_Wait], silent: Sequence[Silence]) -> list[nics.Place]:
    found: dict[str, nics.Place] = {}
    cores = {
        (line.number("queue"), line.text("bus")): line.number("cpu")
        for line in kernel_log.lines(window, ("nic_starved", "nic_reset"))
        if line.number("cpu") is not None
    }
    for each in sorted(waits, key=lambda wait: -wait.seconds):
        if each.nic is not None and each.queue is not None:
            told = each.line.number("cpu")
            cpu = told if told is not None else cores.get((each.queue, each.line.text("bus")))
            place = nics.place(window, each.nic, each.queue, cpu)
            found.setdefault(place.queue, place)
    for silence in silent:
        for row in silence.queues:
            if row.queue is not None:
                place = nics.place(window, row.nic, row.queue, silence.core)
                found.setdefault(place.queue, place)
    return list(found.values())[:_SHOWN]


def _interval(
    window: Window, worst: _Wait | None, silent: Sequence[Silence]
) -> tuple[float | None, float | None]:
    if worst is not None:
        wall = worst.line.wall_s
        return (None, None) if wall is None else (wall - worst.seconds, wall)
    if silent:
        return window.wall(silent[0].start), window.wall(silent[0].end)
    return None, None


def _summary(
    worst: _Wait | None,
    silent: Sequence[Silence],
    places: Sequence[nics.Place],
    counted: Sequence[nics.Counter],
) -> str:
    place = places[0] if places else None
    queue = f"queue {place.queue}" if place is not None else "a queue"
    core = f" of core {place.cores[0]}" if place is not None and place.cores else ""
    if worst is not None:
        age = f", {duration(worst.line.age_s)} ago" if worst.line.age_s is not None else ""
        sure = "" if worst.scheduled == 1 else " (or for an interrupt: the driver does not say)"
        return f"NAPI of {queue} waited {duration(worst.seconds)} for its turn{core}{age}{sure}"
    if silent:
        longest = silent[0]
        held = f"while core {longest.core} was held"
        return f"{queue} was not polled for {duration(longest.seconds)} {held}"
    total = sum(each.value for each in counted)
    return f"{counted[0].nic} suspected a starved poll {total:,} times since the driver was loaded"


def _evidence(
    worst: _Wait | None, silent: Sequence[Silence], counted: Sequence[nics.Counter]
) -> Iterable[Evidence]:
    if worst is not None:
        limit = worst.line.number("threshold_us")
        yield Evidence(
            f"NAPI of {worst.nic or 'a NIC'} queue {worst.queue}",
            f"{worst.seconds:.1f} s",
            "< 0.01 s",
            "s since NAPI ran",
            "kernel log",
            worst.seconds,
            "the queue was idle and nothing asked for a poll"
            if worst.scheduled != 1
            else "the line belongs to another boot",
        )
        if limit is not None:
            yield Evidence(
                "the driver's limit",
                duration(limit / 1e6),
                "not reached",
                "s",
                "kernel log",
                limit / 1e6,
                "the driver's own limit was changed",
            )
    for each in silent[:_SHOWN]:
        fired = f", {count(each.interrupts, 'interrupt')} meanwhile" if each.interrupts else ""
        yield Evidence(
            f"core {each.core} in system time without one NET_RX",
            f"{each.seconds:.1f} s{fired}",
            f"{max(each.expected, 1):,.0f} polls in that time",
            "s",
            "/proc/softirqs, /proc/stat",
            each.seconds,
            "NAPI runs in threads here, or the interrupt was another queue's",
        )
    for counter in counted:
        moved = f", {counter.moved:+} while watched" if counter.moved else ""
        yield Evidence(
            f"{counter.nic} {COUNTER}",
            f"{counter.value:,}{moved}",
            "0",
            "since the driver was loaded",
            "ethtool -S",
            counter.value,
            "they happened long ago" if not counter.moved else "the driver only suspects it",
        )
