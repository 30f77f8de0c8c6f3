"""The poll of a NIC queue waited for its core, and the packets waited with it.

**What is seen.** The driver's own measure in the kernel log: how long since NAPI last ran for a
queue, and whether it was scheduled. ``napi scheduled: 1`` means scheduled and not run: starved.
``napi scheduled: 0`` means not scheduled: an interrupt was lost, which is a different problem and
reported as such. Then ENA's counter ``suspected_poll_starvation``. Live, where the probe watches
(``sexton record``, ``sexton diagnose --probe``): every wait of NET_RX and NET_TX from its raise to
its entry, per core, and one that is still in progress. And without a probe: a core
that serves a queue, spends whole steps in system time and does not run NET_RX once in them
(`/proc/softirqs`), while the queue's interrupt fires, or while the interface receives through other
cores and this one polls at least a hundred times in such a time otherwise.

**Why it hurts.** A queue that is not polled neither receives nor frees what it has sent. After 5 s
the driver's watchdog takes the whole device down and up again.

**What would make it wrong.** Threaded NAPI (``/sys/class/net/*/threaded``) polls without NET_RX.
Drivers older than ENA 2.8 do not say whether NAPI was scheduled. `time_squeeze` is not starvation:
there the poll ran and had too much to do; it is shown and does not change the verdict. The counters
see only waits of a second or more without a single poll; shorter ones need a probe. A held core
that polls nothing and was not requested to is *unknown*: a queue without packets looks the same. If
the probe was running since before the core was held, it decides. It pauses if it would use more
than 0.5 % of a core, and a virtual machine that was paused as a whole looks like a wait.

**Check by hand.** ``dmesg -T | grep -i napi``; ``grep NET_RX /proc/softirqs`` twice, at the core of
the queue; every single wait, in microseconds, with ``sudo bpftrace -e
'tracepoint:irq:softirq_raise /args->vec == 3 && !@raised[cpu]/ { @raised[cpu] = nsecs }
tracepoint:irq:softirq_entry /args->vec == 3 && @raised[cpu]/
{ @wait_us = hist((nsecs - @raised[cpu]) / 1000); delete(@raised[cpu]) }'``.

**What to do.** Find what held the core (`saturated_core`) and fix that. Until then keep the
queue's interrupt off the core that is held: ``echo CORE > /proc/irq/N/smp_affinity_list``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sexton.detect import kernel_log, nics, waits
from sexton.detect.findings import AGAIN, absent, missing, names, not_applicable, unknown, unread
from sexton.detect.registry import Threshold, detector
from sexton.detect.waits import GRAVE, WAIT, LoggedWait, MeasuredWait, Silence, Watch
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cpu import SoftirqCount
from sexton.model.rows.net import Nic, NicQueue
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.rates import lasts

NAME = "starved_napi"

HELD = Threshold(
    "held core", 90, "% in system time", "less leaves the softirq room to run in between"
)

PROBE = "sudo sexton diagnose --probe"
COUNTER = "suspected_poll_starvation"
_SHOWN = 8


class _Seen(NamedTuple):
    """What each method found, the most certain first: measured by the probe, logged by the driver,
    silent by the counters, counted by the driver."""

    window: Window
    measured: Sequence[MeasuredWait]
    logged: Sequence[LoggedWait]
    silent: Sequence[Silence]
    counted: Sequence[nics.Counter]

    @property
    def recent(self) -> Sequence[LoggedWait]:
        return [wait for wait in self.logged if wait.is_recent]

    @property
    def worst_logged(self) -> LoggedWait | None:
        return max(self.recent or self.logged, key=lambda wait: wait.seconds, default=None)

    @property
    def worst_measured(self) -> MeasuredWait | None:
        """The longest by the probe, unless the driver reported a longer one recently."""
        wait, longest = self.worst_logged, next(iter(self.measured), None)
        if longest is None or wait is None or not wait.is_recent:
            return longest
        return longest if longest.seconds >= wait.seconds else None


#: A poll that ran between two waits of one core ends the first; the core was not free for longer.
_ONE_RUN_S = 0.5


def _run_of(wait: MeasuredWait, measured: Sequence[MeasuredWait]) -> list[MeasuredWait]:
    """A wait and those of its vector and core right before it, the oldest first."""
    run = [wait]
    for earlier in sorted(measured, key=lambda one: -one.end):
        same = (earlier.core, earlier.vector) == (wait.core, wait.vector)
        if same and earlier.start < run[0].start <= earlier.end + _ONE_RUN_S:
            run.insert(0, earlier)
    return run


def _beginnings(_finding: Finding, window: Window) -> list[float]:
    """When each wait began, if known, in UNIX seconds."""
    measured = waits.measured_waits(window, WAIT.value)
    found = [window.wall(wait.start) for wait in measured]
    found += [
        wait.line.wall_s - wait.seconds
        for wait in waits.logged_waits(window)
        if wait.line.wall_s is not None and wait.scheduled != 0 and wait.seconds >= WAIT.value
    ]
    for silence in waits.silences(window, HELD.value):
        if silence.is_starved and lasts(silence.seconds, WAIT.value):
            found.append(window.wall(silence.start))
    return found


@detector(
    thresholds=(WAIT, GRAVE, HELD),
    title="starved NAPI",
    story="The card's packets waited for a core",
    lanes=("softirq_wait", "cores", "events"),
    about=("nic", "queue", "core", "irq"),
    answers={"nic": 2, "queue": 2, "irq": 2},
    events=("nic_starved", "softirq_wait"),
    spells=_beginnings,
)
def detect(window: Window) -> Finding:
    """The longest wait measured or logged, or the longest silence seen."""
    real = nics.physical(window)
    if real == ():
        return not_applicable(NAME, "no physical network interface here")
    counters = nics.counters(window, (COUNTER,))
    live = waits.can_tell(window)
    watched = waits.watch(window)
    lacking = list(kernel_log.lacking(window))
    if not live:
        lacking += _lacks_live(window)
    if not (live or watched.spans or counters or kernel_log.was_read(window)):
        if real is None:
            lacking.append(missing(window.why_missing(Nic)))
        what = "no kernel log, no driver counter and no softirq counters"
        return unknown(NAME, what, tuple(lacking))
    logged = waits.logged_waits(window)
    held = [
        silence
        for silence in waits.silences(window, HELD.value)
        if lasts(silence.seconds, WAIT.value) and not watched.saw(silence.start, silence.end)
    ]
    seen = _Seen(
        window,
        waits.measured_waits(window, WAIT.value),
        [wait for wait in logged if wait.scheduled != 0 and wait.seconds >= WAIT.value],
        [silence for silence in held if silence.is_starved],
        [counter for counter in counters if counter.value],
    )
    if seen.measured or seen.logged or seen.silent or seen.counted:
        return _starved(seen, lacking)
    if held:
        return _poll_need_unknown(held[0], lacking)
    lost = [wait for wait in logged if wait.scheduled == 0 and wait.seconds >= WAIT.value]
    return _fed(window, lost, (live, watched), lacking)


def _poll_need_unknown(silence: Silence, lacking: Sequence[Missing]) -> Finding:
    """The core was held and did not poll; whether a packet was waiting is unknown."""
    row = silence.queues[0]
    summary = (
        f"core {silence.core} was held for {duration(silence.seconds)} and did not poll"
        f" {row.nic}:{row.queue} once; whether a packet waited is unknown"
    )
    probe = Missing("how long every poll waits, as it happens", PROBE)
    return unknown(NAME, summary, (*lacking, probe))


def _lacks_live(window: Window) -> tuple[Missing, ...]:
    again = Missing("two readings of softirqs and core times", AGAIN)
    return unread(window, NicQueue, SoftirqCount) or (again,)


def _fed(
    window: Window,
    lost: Sequence[LoggedWait],
    views: tuple[bool, Watch],
    lacking: Sequence[Missing],
) -> Finding:
    live, watched = views
    evidence = [waits.of_no_wait(window, watched)] if watched.spans else []
    reach = kernel_log.reach(window)
    if reach is not None:
        silent = "this driver does not report it"
        evidence.append(reach.no_lines("queues the driver reported as starved", silent))
    if lost:
        worst = max(lost, key=lambda wait: wait.seconds)
        evidence.append(
            Evidence(
                f"{worst.nic or 'a NIC'} queue {worst.queue}: NAPI was not scheduled",
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
                "waits shorter than a second are not seen by these counters",
            )
        )
    evidence += waits.backlog(window)
    summary = "no NIC queue waited for its core"
    if lost:
        summary += f"; {len(lost)} waited for an interrupt that did not come: not starved"
    if not evidence:
        since, why = "since the driver was loaded", "the driver was loaded again since"
        evidence = [Evidence(COUNTER, "0", "0", since, "ethtool -S", 0, why)]
    return absent(NAME, summary, evidence, (*lacking, *_lacks_probe(watched)))


def _lacks_probe(watched: Watch) -> Iterable[Missing]:
    if not watched.spans:
        yield Missing("single waits below a second", PROBE)
    elif watched.why_not:
        yield Missing(f"waits while the probe was paused: it used {watched.why_not}", PROBE)


def _starved(seen: _Seen, lacking: list[Missing]) -> Finding:
    places = _places(seen)
    interfaces = [wait.nic for wait in seen.logged]
    interfaces += [place.queue.rpartition(":")[0] for place in places]
    interfaces += [row.nic for silence in seen.silent for row in silence.queues]
    interfaces += [counts.nic for counts in seen.counted]
    cores = [str(wait.core) for wait in seen.measured[:_SHOWN]]
    cores += [core for place in places for core in place.cores]
    start, end = _interval(seen)
    if not seen.measured and (seen.silent or not seen.logged):
        lacking.append(Missing("how long every poll waited", PROBE))
    return Finding(
        NAME,
        Verdict.PRESENT,
        _severity(seen),
        _summary(seen, places),
        entities={
            "nic": names(interfaces),
            "queue": tuple(place.queue for place in places),
            "core": names(cores),
            "irq": names(irq for place in places for irq in place.irqs),
        },
        start=start,
        end=end,
        evidence=(*_evidence(seen), *waits.backlog(seen.window)),
        missing=tuple(lacking),
    )


def _severity(seen: _Seen) -> Severity:
    # A line that does not say whether NAPI was scheduled may mean a lost interrupt.
    sure = [wait.seconds for wait in seen.recent if wait.scheduled == 1]
    sure += [wait.seconds for wait in seen.measured]
    sure += [silence.seconds for silence in seen.silent]
    if max(sure, default=0.0) >= GRAVE.value or any(counts.moved for counts in seen.counted):
        return Severity.CRITICAL
    reach = kernel_log.reach(seen.window)
    is_old = reach is not None and reach.covers_a_day
    if sure or seen.recent or (seen.counted and not is_old):
        return Severity.WARNING
    return Severity.INFO


def _places(seen: _Seen) -> list[nics.Place]:
    window = seen.window
    found: dict[str, nics.Place] = {}
    cores = {
        (line.number("queue"), line.text("bus")): line.number("cpu")
        for line in kernel_log.lines(window, waits.FAMILIES)
        if line.number("cpu") is not None
    }
    for wait in sorted(seen.recent or seen.logged, key=lambda wait: -wait.seconds):
        if wait.nic is not None and wait.queue is not None:
            number = wait.line.number("cpu")
            cpu = number if number is not None else cores.get((wait.queue, wait.line.text("bus")))
            place = nics.place(window, wait.nic, wait.queue, cpu)
            found.setdefault(place.queue, place)
    served = nics.serving_cores(window) if seen.measured else {}
    polled = [(wait.core, served.get(wait.core, ())) for wait in seen.measured]
    for core, rows in [*polled, *((silence.core, silence.queues) for silence in seen.silent)]:
        for row in rows:
            if row.queue is not None:
                place = nics.place(window, row.nic, row.queue, core)
                found.setdefault(place.queue, place)
    return list(found.values())[:_SHOWN]


def _interval(seen: _Seen) -> tuple[float | None, float | None]:
    wait, window = seen.worst_logged, seen.window
    span = seen.worst_measured or (None if wait is not None else next(iter(seen.silent), None))
    if isinstance(span, MeasuredWait):
        return window.wall(_run_of(span, seen.measured)[0].start), window.wall(span.end)
    if span is not None:
        return window.wall(span.start), window.wall(span.end)
    if wait is not None and wait.line.wall_s is not None:
        return wait.line.wall_s - wait.seconds, wait.line.wall_s
    return None, None


def _summary(seen: _Seen, places: Sequence[nics.Place]) -> str:
    place = places[0] if places else None
    queue = f"queue {place.queue}" if place is not None else "a queue"
    core = f"core {place.cores[0]}" if place is not None and place.cores else "its turn"
    measured, wait = seen.worst_measured, seen.worst_logged
    if measured is not None:
        polls = [item.queue for item in places if str(measured.core) in item.cores]
        still = "" if measured.is_over else " and had not run yet"
        serves = f", which polls {', '.join(polls)}" if polls else ""
        waited = f"{measured.vector} waited {duration(measured.seconds)}{still}"
        run = _run_of(measured, seen.measured)
        before = ""
        if len(run) > 1:
            whole_s = measured.end - run[0].start
            more = count(len(run) - 1, "wait")
            before = f" ({duration(whole_s)} with {more} right before)"
        return f"{waited} for core {measured.core}{before}{serves}"
    if wait is not None:
        age = f", {duration(wait.line.age_s)} ago" if wait.line.age_s is not None else ""
        sure = (
            "" if wait.scheduled == 1 else " (or for an interrupt: the driver does not say which)"
        )
        return f"NAPI of {queue} waited {duration(wait.seconds)} for {core}{age}{sure}"
    if seen.silent:
        longest = seen.silent[0]
        held = f"while core {longest.core} was held"
        return f"{queue} was not polled for {duration(longest.seconds)} {held}"
    counted = seen.counted
    total = sum(counts.value for counts in counted)
    return f"{counted[0].nic} suspected a starved poll {total:,} times since the driver was loaded"


def _evidence(seen: _Seen) -> Iterable[Evidence]:
    yield from (waits.of_a_wait(wait) for wait in seen.measured[:_SHOWN])
    worst = seen.worst_logged
    if worst is not None:
        limit = worst.line.number("threshold_us")
        yield Evidence(
            f"NAPI of {worst.nic or 'a NIC'} queue {worst.queue}",
            f"{worst.seconds:.1f} s",
            "< 0.01 s",
            "s since NAPI ran",
            "kernel log",
            worst.seconds,
            "the queue was idle and no poll was requested"
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
    for silence in seen.silent[:_SHOWN]:
        fired = (
            f", {count(silence.interrupts, 'interrupt')} meanwhile" if silence.interrupts else ""
        )
        yield Evidence(
            f"core {silence.core} in system time without one NET_RX",
            f"{silence.seconds:.1f} s{fired}",
            f"{max(silence.expected, 1):,.0f} polls in that time",
            "s",
            "/proc/softirqs, /proc/stat",
            silence.seconds,
            "NAPI runs in threads here, or the interrupt was another queue's",
        )
    for counter in seen.counted:
        old, now = "they happened long ago", "the driver only suspects it"
        yield counter.evidence(now if counter.moved else old)
