"""A network interface was reset while connections were using it.

**What is seen.** Lines of the driver and the kernel in the log (ENA's reset lines, ``NETDEV
WATCHDOG``, other drivers' timeouts; several lines of one reset count once) and the driver's
counters (``total_resets``, ``tx_timeout``, ``missing_tx_cmpl``, ``suspected_poll_starvation``, …),
both since boot and in this window. The queue in the log line is
joined with its interrupt and its core, or with the core the driver names itself.

**Why it hurts.** For seconds nothing is sent or received; connections with short timeouts break.
A training job reports a lost actor, and the node looks idle a moment later.

**What would make it wrong.** Requested resets (``ethtool --reset``, a driver reload, an MTU change
on some drivers) look alike. The log is a ring buffer that drops old lines; counters restart with
the driver. The queue's core is today's: irqbalance may have moved it since. ``wd_expired`` (the
device stopped sending keep-alives) and ``missing_intr`` (an interrupt was lost) point at the device
or the hypervisor, not at a starved core.

**Check by hand.** ``dmesg -T | grep -iE 'reset|watchdog|napi'``, ``ethtool -S eth0 | grep -E
'reset|timeout|starvation|wd_expired|missing'``, then ``cat /proc/irq/N/effective_affinity_list``.

**What to do.** If the poll was starved, look for what held that core (`saturated_core`,
`starved_napi`): the reset is a symptom. If the device fell silent or lost an interrupt, update the
driver and replace the instance. Raising the driver's time-out hides the stall and cures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from shlex import quote

from sexton.detect import kernel_log, nics, resets
from sexton.detect.findings import missing, names, not_applicable, unknown, unread
from sexton.detect.kernel_log import DAY_S, Burst
from sexton.detect.registry import ANY_INTERVAL, READS, Advice, Averages, Stage, Threshold, detector
from sexton.detect.resets import CAUSES, ONE_RESET
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.net import Nic, NicCounter, NicQueue
from sexton.model.text import printable
from sexton.model.text import seconds as duration
from sexton.model.window import Window

NAME = "nic_resets"

RECENT = Threshold(
    "recent", DAY_S, "s", "a reset today still explains a job that died today; older ones do not"
)
MANY = Threshold(
    "many", 3, "resets in 24 h", "the incident's nodes had a few a day; one may be maintenance"
)

#: Causes by the name the log gives them, as the counter of the same meaning.
_REASONS = {
    "SUSPECTED_POLL_STARVATION": "suspected_poll_starvation",
    "MISS_TX_CMPL": "missing_tx_cmpl",
    "OS_NETDEV_WD": "os_netdev_wd",
    "KEEP_ALIVE_TO": "wd_expired",
    "MISS_INTERRUPT": "missing_intr",
}
_OTHER_REASONS = {"DEVICE_REQUEST": "the device requested it", "ADMIN_TO": "the device was silent"}
#: Evidence for the device or the hypervisor and against a starved core.
_ELSEWHERE = ("wd_expired", "missing_intr")
_SHOWN = 8


@dataclass(slots=True)
class _Report:
    """All evidence of resets, counted by when they happened."""

    bursts: list[Burst]
    counters: list[nics.Counter]
    in_window: int = 0
    day: int = 0
    undated: int = 0
    older: int = 0
    causes: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.day + self.undated + self.older

    @property
    def failed(self) -> bool:
        """Did the last reset end with the interface down?"""
        newest = self.bursts[-1] if self.bursts else None
        return newest is not None and newest.lines[-1].text("phase") == "failed"

    @property
    def is_reset(self) -> bool:
        """False if only a watchdog fired: some drivers log that and do nothing."""
        logged = any(
            line.event.family != "nic_watchdog" for burst in self.bursts for line in burst.lines
        )
        return logged or any(counter.value for counter in self.counters)

    @property
    def severity(self) -> Severity:
        if self.in_window or self.day >= MANY.value or (self.failed and self.day):
            return Severity.CRITICAL
        return Severity.WARNING if self.day or self.undated else Severity.INFO


def reset_times(finding: Finding, window: Window) -> tuple[float, ...]:
    """When its interfaces were reset (UNIX), by the log, else by the finding."""
    mine = finding.entities.get("nic", ())
    found = [
        burst.lines[0].wall_s
        for burst in resets.logged(window)
        if burst.name is None or printable(burst.name) in mine
    ]
    dated = tuple(wall_s for wall_s in found if wall_s is not None)
    return dated or (() if finding.start is None else (finding.start,))


def _ask_driver(finding: Finding, _window: Window) -> list[Step]:
    why = "which errors its driver counts: the device, its driver or the other end of the link"
    return [
        Step(f"ethtool -S {quote(nic)} | grep -vw 0", why, READS)
        for nic in finding.entities.get("nic", ())[:1]
    ]


@detector(
    thresholds=(RECENT, MANY, ONE_RESET),
    title="NIC resets",
    story="The network card was reset",
    lanes=("nic_faults", "events", "softirq_wait", "tcp"),
    about=("nic", "queue", "core", "irq"),
    answers={"nic": 1, "queue": 1, "irq": 1, "job": 3},
    essential=3,
    events=("nic_reset", "nic_watchdog"),
    moments=reset_times,
    ends_jobs=True,
    advice=Advice(Stage.PROVE, _ask_driver),
    averages=Averages((NicCounter,), ANY_INTERVAL, "resets"),
)
def detect(window: Window) -> Finding:
    """How often, when, why and on which queue."""
    real = nics.physical(window)
    if real == ():
        return not_applicable(NAME, "no physical network interface here")
    counters = resets.counters(window)
    lacking = list(kernel_log.lacking(window))
    if not counters and lacking:
        if real is None:
            lacking.append(nics.hidden(window) or missing(window.why_missing(Nic)))
        what = "no kernel log, and no driver here counts resets"
        return unknown(NAME, what, tuple(lacking))
    unread_counters = unread(window, NicCounter)
    if real is not None:
        lacking += unread_counters
    summary = _report(window, counters)
    if summary.total == 0 and summary.in_window == 0:
        return _none(window, counters, real, lacking)
    return _reset(window, summary, lacking)


def _report(window: Window, counters: list[nics.Counter]) -> _Report:
    summary = _Report(resets.logged(window), counters)
    today: list[Burst] = []
    for burst in summary.bursts:
        if burst.age_s is None:
            summary.undated += 1
        elif burst.age_s <= DAY_S:
            today.append(burst)
        else:
            summary.older += 1
    counted = resets.counted(counters)
    summary.in_window = resets.in_window(window) or 0
    summary.day = resets.merged(today, counted.in_window)
    unlogged = max(0, resets.merged(summary.bursts, counted.since_boot) - summary.total)
    reach = kernel_log.reach(window)
    uptime_s = window.node.uptime_s if window.node is not None else None
    if uptime_s is not None and uptime_s <= DAY_S:
        summary.day += unlogged
    elif reach is not None and reach.covers_a_day:
        summary.older += unlogged
    else:
        summary.undated += unlogged
    summary.causes = _causes(summary, counters)
    return summary


def _causes(summary: _Report, counters: Iterable[nics.Counter]) -> list[str]:
    found: set[str] = set()
    for burst in summary.bursts:
        for line in burst.lines:
            reason = line.text("reason") or ""
            if reason in _REASONS:
                found.add(_REASONS[reason])
            elif reason in _OTHER_REASONS:
                found.add(reason)
    for counter in counters:
        cause = resets.meaning(counter.name)
        if counter.value and cause is not None and cause in CAUSES:
            found.add("os_netdev_wd" if cause == "tx_timeout" else cause)
    # The most certain first: a driver that suspects starvation has checked.
    order = [*CAUSES, *_OTHER_REASONS]
    return sorted(found, key=order.index)


def _none(
    window: Window,
    counters: Sequence[nics.Counter],
    real: tuple[str, ...] | None,
    lacking: Sequence[Missing],
) -> Finding:
    evidence = []
    reach = kernel_log.reach(window)
    if reach is not None:
        silent = "this driver does not log resets"
        evidence.append(reach.no_lines("resets in the kernel log", silent))
    if counters:
        evidence.append(
            Evidence(
                f"reset counters of {', '.join(names(counter.nic for counter in counters))}",
                "0",
                "0",
                "since the driver was loaded",
                "ethtool -S",
                0,
                "the driver was loaded again after the reset",
            )
        )
    since = "since boot" if counters or reach is None else reach.words
    which = f" of {', '.join(real)}" if real else ""
    return Finding(
        NAME,
        Verdict.ABSENT,
        Severity.INFO,
        f"0 resets{which} {since}",
        entities={"nic": real or ()},
        evidence=tuple(evidence),
        missing=tuple(lacking),
    )


def _reset(window: Window, summary: _Report, lacking: list[Missing]) -> Finding:
    places, found = _places(window, summary)
    dated = [burst.wall_s for burst in summary.bursts if burst.wall_s is not None]
    recent = [wall for wall in dated if window.end - wall <= DAY_S] or dated
    moved = any(counter.moved for counter in summary.counters)
    start = min(recent, default=window.start if moved else None)
    end = window.end if moved else max(recent, default=None)
    if places and not any(place.cores for place in places):
        lacking += unread(window, NicQueue)
    return Finding(
        NAME,
        Verdict.PRESENT,
        summary.severity,
        _summary(summary, found, places),
        entities={
            "nic": found,
            "queue": tuple(place.queue for place in places),
            "core": names(core for place in places for core in place.cores),
            "irq": names(irq for place in places for irq in place.irqs),
        },
        start=start,
        end=end,
        evidence=tuple(_evidence(window, summary, places)),
        missing=tuple(lacking),
    )


def _places(window: Window, summary: _Report) -> tuple[list[nics.Place], tuple[str, ...]]:
    """The queues involved, the newest first, and the interfaces."""
    found: dict[str, nics.Place] = {}
    for burst in reversed(summary.bursts):
        cores = {
            line.number("queue"): line.number("cpu")
            for line in burst.lines
            if line.number("cpu") is not None
        }
        for line in burst.lines:
            queue = line.number("queue")
            if queue is not None and burst.name is not None:
                place = nics.place(window, burst.name, queue, cores.get(queue))
                found.setdefault(place.queue, place)
    for nic, queue, counts in nics.missed_by_queue(window):
        if counts.moved or not summary.bursts:
            place = nics.place(window, nic, queue)
            found.setdefault(place.queue, place)
    logged = (burst.name for burst in reversed(summary.bursts))
    counted = (counter.nic for counter in summary.counters if counter.value)
    return list(found.values())[:_SHOWN], names([*logged, *counted])


def _summary(summary: _Report, found: Sequence[str], places: Sequence[nics.Place]) -> str:
    who = ", ".join(found) or "an interface"
    what = "was reset" if summary.is_reset else "hit its transmit watchdog"
    if summary.in_window:
        when = f"{_times(summary.in_window)} while watched"
    elif summary.day:
        last = min(burst.age_s or 0.0 for burst in summary.bursts) if summary.bursts else None
        ago = f", last {duration(last)} ago" if last is not None else ""
        when = f"{_times(summary.day)} in 24 h{ago}"
    elif summary.undated:
        when = f"{_times(summary.undated)} since boot, time unknown"
    else:
        when = f"{_times(summary.older)}, all more than 24 h ago"
    where = ""
    if places:
        core = f" on core {places[0].cores[0]}" if places[0].cores else ""
        where = f", queue {places[0].queue.rpartition(':')[2]}{core}"
    words = {**CAUSES, **_OTHER_REASONS}
    why = f": {words[summary.causes[0]]}" if summary.causes else ""
    if summary.causes and summary.causes[0] in _ELSEWHERE:
        why += ", which points at the device, not at a starved core"
    down = ", and the last reset failed" if summary.failed else ""
    return f"{who} {what} {when}{where}{why}{down}"


def _evidence(window: Window, summary: _Report, places: Sequence[nics.Place]) -> Iterable[Evidence]:
    reach = kernel_log.reach(window)
    if summary.bursts and reach is not None:
        yield Evidence(
            "resets in the kernel log"
            if summary.is_reset
            else "transmit watchdogs in the kernel log",
            f"{len(summary.bursts)}",
            "0",
            reach.words,
            reach.origin,
            len(summary.bursts),
            "they were requested by an administrator or a driver update",
        )
        newest = summary.bursts[-1]
        causes = [line for line in newest.lines if line.text("phase") == "cause"] or newest.lines
        yield Evidence(
            "last driver message",
            causes[0].event.message,
            "nothing",
            "log line",
            reach.origin,
            None,
            "the line belongs to another boot",
        )
    for counter in summary.counters:
        if counter.value:
            note = " (points at the device)" if counter.name in _ELSEWHERE else ""
            wrong = "an administrator requested it" if counter.moved else "they happened long ago"
            yield counter.evidence(wrong, note)
    for place in places:
        if place.cores:
            yield Evidence(
                f"core that serves queue {place.queue}",
                ", ".join(f"core {core}" for core in place.cores),
                "not held",
                "core",
                f"interrupt {', '.join(place.irqs)}" if place.irqs else "kernel log",
                float(place.cores[0]),
                "the interrupt was moved since the reset",
            )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"
