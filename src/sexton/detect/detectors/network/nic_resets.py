"""A network interface was reset while connections were using it.

**What is seen.** Lines of the driver and the kernel in the log (ENA's reset lines, ``NETDEV
WATCHDOG``, other drivers' timeouts; several lines of one reset count once) and the driver's
counters (``total_resets``, ``tx_timeout``, ``missing_tx_cmpl``, ``suspected_poll_starvation``, …),
both since boot and in this window. The queue in the log line is
joined with its interrupt and its core, or with the core the driver names itself.

**Why it hurts.** For seconds nothing is sent or received; connections with short timeouts break.
A training job reports a lost actor, and the node looks idle a moment later.

**What would make it wrong.** Resets requested by a person (``ethtool --reset``, a driver reload, an
MTU change on some drivers) look alike. The log is a ring and forgets; counters start again with the
driver. The queue's core is today's: irqbalance may have moved it since. ``wd_expired`` (the device
stopped its keep-alive) and ``missing_intr`` (an interrupt was lost) point at the device or the
hypervisor, not at a starved core.

**Check by hand.** ``dmesg -T | grep -iE 'reset|watchdog|napi'``, ``ethtool -S eth0 | grep -E
'reset|timeout|starvation|wd_expired|missing'``, then ``cat /proc/irq/N/effective_affinity_list``.

**What to do.** If the poll was starved, look for what held that core (`saturated_core`,
`starved_napi`): the reset is a symptom. If the device fell silent or lost an interrupt, update the
driver and replace the instance. Raising the driver's time-out hides the stall and cures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sexton.detect import kernel_log, nics
from sexton.detect.kernel_log import DAY_S, Burst
from sexton.detect.registry import Threshold, detector, missing, not_applicable, unknown
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
ONE_RESET = Threshold(
    "one reset", 10, "s between lines", "a driver logs all lines of one reset within seconds"
)

FAMILIES = ("nic_reset", "nic_watchdog", "nic_starved")
#: Counters of single causes. `tx_timeout` counts again what `os_netdev_wd` counts.
CAUSES = {
    "suspected_poll_starvation": "its poll was starved",
    "missing_tx_cmpl": "transmissions were not completed in time",
    "os_netdev_wd": "the transmit watchdog fired",
    "tx_timeout": "the transmit watchdog fired",
    "wd_expired": "the device stopped its keep-alive",
    "missing_intr": "an interrupt was lost",
}
COUNTERS = ("total_resets", *CAUSES)
#: Causes by the name the log gives them, as the counter of the same meaning.
_REASONS = {
    "SUSPECTED_POLL_STARVATION": "suspected_poll_starvation",
    "MISS_TX_CMPL": "missing_tx_cmpl",
    "OS_NETDEV_WD": "os_netdev_wd",
    "KEEP_ALIVE_TO": "wd_expired",
    "MISS_INTERRUPT": "missing_intr",
}
_OTHER_REASONS = {"DEVICE_REQUEST": "the device requested it", "ADMIN_TO": "the device was silent"}
#: What speaks for the device or the hypervisor and against a starved core.
_ELSEWHERE = ("wd_expired", "missing_intr")
_SHOWN = 8


@dataclass(slots=True)
class _Report:
    """Everything that speaks of resets, sorted by when they were."""

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
        """Did the newest attempt end with the interface down?"""
        newest = self.bursts[-1] if self.bursts else None
        return newest is not None and newest.lines[-1].text("phase") == "failed"

    @property
    def is_reset(self) -> bool:
        """Or only a watchdog that fired: some drivers tell and do nothing."""
        said = any(
            line.event.family != "nic_watchdog" for burst in self.bursts for line in burst.lines
        )
        return said or any(counter.value for counter in self.counters)

    @property
    def severity(self) -> Severity:
        if self.in_window or self.day >= MANY.value or (self.failed and self.day):
            return Severity.CRITICAL
        return Severity.WARNING if self.day or self.undated else Severity.INFO


def resets(finding: Finding, window: Window) -> tuple[float, ...]:
    """When its interfaces were reset (UNIX), by the log, else by the finding."""
    names = finding.entities.get("nic", ())
    lines = kernel_log.lines(window, FAMILIES)
    named = nics.namer(window, lines)
    found = [
        burst.lines[0].wall_s
        for burst in kernel_log.bursts(lines, named, ONE_RESET.value)
        if (burst.name is None or printable(burst.name) in names) and _is_reset(burst)
    ]
    dated = tuple(wall_s for wall_s in found if wall_s is not None)
    return dated or (() if finding.start is None else (finding.start,))


@detector(
    thresholds=(RECENT, MANY, ONE_RESET),
    title="NIC resets",
    story="The network card was reset",
    lanes=("nic_faults", "events", "softirq_wait", "tcp"),
    about=("nic", "queue", "core", "irq"),
    answers={"nic": 1, "queue": 1, "irq": 1, "job": 3},
    essential=3,
    events=("nic_reset", "nic_watchdog"),
    moments=resets,
    ends_jobs=True,
)
def detect(window: Window) -> Finding:
    """How often, when, why and on which queue."""
    real = nics.physical(window)
    if real == ():
        return not_applicable(NAME, "no physical network interface here")
    counters = [
        counter
        for counter in nics.counters(window, COUNTERS)
        if real is None or counter.nic in real
    ]
    lacking = list(kernel_log.lacking(window))
    if not counters and lacking:
        if real is None:
            lacking.append(nics.hidden(window) or missing(window.why_missing(Nic)))
        what = "no kernel log, and no driver here counts resets"
        return unknown(NAME, what, tuple(lacking))
    if not window.read(NicCounter) and real is not None:
        lacking.append(missing(window.why_missing(NicCounter)))
    summary = _report(window, counters)
    if summary.total == 0 and summary.in_window == 0:
        return _none(window, counters, real, lacking)
    return _reset(window, summary, lacking)


def _report(window: Window, counters: list[nics.Counter]) -> _Report:
    lines = kernel_log.lines(window, FAMILIES)
    grouped = kernel_log.bursts(lines, nics.namer(window, lines), ONE_RESET.value)
    summary = _Report([burst for burst in grouped if _is_reset(burst)], counters)
    for burst in summary.bursts:
        if burst.age_s is None:
            summary.undated += 1
        elif burst.age_s <= DAY_S:
            summary.day += 1
            summary.in_window += burst.age_s <= window.seconds
        else:
            summary.older += 1
    moved = _resets(counters, "moved")
    summary.in_window = max(summary.in_window, moved)
    summary.day = max(summary.day, moved)
    unlogged = max(0, _resets(counters, "value") - summary.total)
    if _is_young(window):
        summary.day += unlogged
    elif _covers_a_day(window):
        summary.older += unlogged
    else:
        summary.undated += unlogged
    summary.causes = _causes(summary, counters)
    return summary


def _is_reset(burst: Burst) -> bool:
    """A starved queue alone is no reset; ENA's own transmit time-out is, for a reset follows."""
    return any(
        line.event.family in ("nic_reset", "nic_watchdog") or line.text("phase") == "cause"
        for line in burst.lines
    )


def _resets(counters: Iterable[nics.Counter], what: str) -> int:
    """Resets by the counters: the total where the driver keeps one, else the sum of the causes."""
    total = 0
    by_nic: dict[str, dict[str, int]] = {}
    for counter in counters:
        by_nic.setdefault(counter.nic, {})[counter.name] = getattr(counter, what)
    for named in by_nic.values():
        causes = sum(value for name, value in named.items() if name in CAUSES)
        again = min(named.get("tx_timeout", 0), named.get("os_netdev_wd", 0))
        total += named["total_resets"] if "total_resets" in named else causes - again
    return total


def _is_young(window: Window) -> bool:
    node = window.node
    return node is not None and node.uptime_s is not None and node.uptime_s <= DAY_S


def _covers_a_day(window: Window) -> bool:
    reach = kernel_log.reach(window)
    return reach is not None and reach.covers_a_day


def _causes(summary: _Report, counters: Iterable[nics.Counter]) -> list[str]:
    found: dict[str, None] = {}
    for burst in reversed(summary.bursts):
        for line in burst.lines:
            reason = line.text("reason") or ""
            if reason in _REASONS:
                found[_REASONS[reason]] = None
            elif reason in _OTHER_REASONS:
                found[reason] = None
    for counter in counters:
        if counter.value and counter.name in CAUSES:
            found["os_netdev_wd" if counter.name == "tx_timeout" else counter.name] = None
    # The surest first: a driver that suspects starvation has looked.
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
        evidence.append(
            Evidence(
                "resets in the kernel log",
                "0",
                "0",
                reach.words,
                reach.origin,
                0,
                reach.wrong_if or "this driver does not log resets",
            )
        )
    if counters:
        names = ", ".join(dict.fromkeys(counter.nic for counter in counters))
        evidence.append(
            Evidence(
                f"reset counters of {names}",
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
    places, names = _places(window, summary)
    dated = [burst.wall_s for burst in summary.bursts if burst.wall_s is not None]
    recent = [wall for wall in dated if window.end - wall <= DAY_S] or dated
    moved = any(counter.moved for counter in summary.counters)
    start = min(recent, default=window.start if moved else None)
    end = window.end if moved else max(recent, default=None)
    if places and not any(place.cores for place in places) and not window.read(NicQueue):
        lacking.append(missing(window.why_missing(NicQueue)))
    return Finding(
        NAME,
        Verdict.PRESENT,
        summary.severity,
        _summary(summary, names, places),
        entities={
            "nic": names,
            "queue": tuple(place.queue for place in places),
            "core": _unique(core for place in places for core in place.cores),
            "irq": _unique(irq for place in places for irq in place.irqs),
        },
        start=start,
        end=end,
        evidence=tuple(_evidence(window, summary, places)),
        missing=tuple(lacking),
    )


def _places(window: Window, summary: _Report) -> tuple[list[nics.Place], tuple[str, ...]]:
    """The queues that are blamed, the newest first, and the interfaces."""
    found: dict[str, nics.Place] = {}
    names: dict[str, None] = {}
    for burst in reversed(summary.bursts):
        if burst.name is not None:
            names[burst.name] = None
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
    names |= dict.fromkeys(counter.nic for counter in summary.counters if counter.value)
    return list(found.values())[:_SHOWN], tuple(names)


def _summary(summary: _Report, names: Sequence[str], places: Sequence[nics.Place]) -> str:
    who = ", ".join(names) or "an interface"
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
            "they were requested by a person or a driver update",
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
            moved = f", {counter.moved:+} while watched" if counter.moved else ""
            text = " (points at the device)" if counter.name in _ELSEWHERE else ""
            yield Evidence(
                f"{counter.nic} {counter.name}{text}",
                f"{counter.value:,}{moved}",
                "0",
                "since the driver was loaded",
                "ethtool -S",
                counter.value,
                "a person requested it" if counter.moved else "they happened long ago",
            )
    for place in places:
        if place.cores:
            yield Evidence(
                f"queue {place.queue} is served by core",
                ", ".join(place.cores),
                "any core that is not held",
                "core",
                f"interrupt {', '.join(place.irqs)}" if place.irqs else "kernel log",
                float(place.cores[0]),
                "the interrupt was moved since the reset",
            )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
