"""The kernel's table of tracked connections is full, and new connections are dropped.

**What is seen.** Lines in the kernel log (``nf_conntrack: table full, dropping packet``,
with the number of a container's network namespace), the table's fill (`nf_conntrack_count` of
`nf_conntrack_max`) and what it had to do (`/proc/net/stat/nf_conntrack`: packets dropped, entries
evicted early). One level up, on EC2, the instance's own limit: the interface's counter
``conntrack_allowance_exceeded``.

**Why it hurts.** Every packet that would open a connection is dropped silently: it
looks like a lossy network. Established connections continue, so half of everything works.

**What would make it wrong.** The log is rate-limited, so its lines do not count packets. Fill
and counters are those of one network namespace; the log covers all of them. Packets are dropped
too where two of them make the same entry at once (``insert_failed``, common with UDP name
look-ups): without a full table that is only noted. A table that is nearly
full drops nothing yet; the kernel evicts unanswered entries from 95 % on. A container's table
that was full earlier today is *info*: it may be gone with its namespace.

**Check by hand.** ``dmesg -T | grep conntrack``; ``cat /proc/sys/net/netfilter/nf_conntrack_count
/proc/sys/net/netfilter/nf_conntrack_max``; ``conntrack -S``; what fills it:
``awk '{print $3, $7}' /proc/net/nf_conntrack | sort | uniq -c | sort -rn | head``.

**What to do.** Find what opens so many connections and does not close them. ``sysctl -w
net.netfilter.nf_conntrack_max=N`` helps at once (about 320 bytes each); so do shorter timeouts
(``nf_conntrack_tcp_timeout_established`` is five days) and NOTRACK rules for traffic that needs no
state. The instance's allowance grows only with its type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sexton.detect import kernel_log, nics
from sexton.detect.findings import absent, missing, names, not_applicable, unknown
from sexton.detect.kernel_log import DAY_S, Line
from sexton.detect.registry import Averages, Threshold, detector, look
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.net import NOT_TRACKING, Conntrack
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.steps import Step, steps

NAME = "conntrack_full"

FULL = Threshold(
    "full", 95, "% of nf_conntrack_max", "from here on the kernel evicts entries early"
)
NEAR = Threshold(
    "near", 80, "% of nf_conntrack_max", "one burst away from full; worth a line, not an alarm"
)
RECENT = Threshold(
    "recent", DAY_S, "s", "a table that was full today may be what broke the job; older is history"
)
FAMILY = "conntrack"
ALLOWANCE = "conntrack_allowance_exceeded"
_SOURCE = "/proc/net/stat/nf_conntrack"


class _Report(NamedTuple):
    """Everything known about the table. `fill` is the highest in the window, in per cent.

    Log lines are from the last day (`recent`), undated or older; `while_watched` are the recent
    ones that were logged in the window.
    """

    recent: Sequence[Line]
    undated: Sequence[Line]
    older: Sequence[Line]
    while_watched: Sequence[Line]
    steps: Sequence[Step[Conntrack]]
    fullest: Conntrack | None
    fill: float | None
    allowance: Sequence[nics.Counter]

    def moved(self, field: str) -> int:
        return sum(step.delta(field) or 0 for step in self.steps)

    @property
    def is_full(self) -> bool:
        """By its fill, or by evicted entries: only a full table evicts."""
        return (self.fill or 0.0) >= FULL.value or self.moved("early_drops") > 0

    @property
    def dropped(self) -> int:
        """Packets dropped while watched because the table was full; not those that lost a race."""
        return self.moved("drops") if self.while_watched or self.is_full else 0

    @property
    def severity(self) -> Severity | None:
        """`None` if there is nothing to report."""
        if self.dropped or any(map(_is_here, self.while_watched)):
            return Severity.CRITICAL
        exceeded = any(counts.moved for counts in self.allowance)
        # A table of another namespace that was full hours ago may be gone with it.
        lines = any(map(_is_here, (*self.recent, *self.undated)))
        if self.while_watched or lines or self.is_full or exceeded:
            return Severity.WARNING
        near = (self.fill or 0.0) >= NEAR.value
        logged = self.recent or self.undated or self.older
        reported = near or logged or any(counts.value for counts in self.allowance)
        return Severity.INFO if reported else None


@detector(
    thresholds=(FULL, NEAR, RECENT),
    title="full conntrack table",
    story="New connections were dropped",
    lanes=("tcp", "events"),
    about=("nic",),
    events=(FAMILY,),
    advice=look(
        "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max",
        "see how full it is; raise the maximum, or shorten the timeouts of what fills it",
    ),
    averages=Averages((Conntrack,), 60, "a table that is full"),
)
def detect(window: Window) -> Finding:
    """Whether the table is or was full, and what was dropped."""
    report = _report(window)
    severity = report.severity
    if severity is not None:
        return _full(window, report, severity)
    if report.fullest is None and not report.allowance:
        state = window.why_missing(Conntrack)
        if state.detail == NOT_TRACKING:
            return not_applicable(NAME, NOT_TRACKING)
        if not kernel_log.was_read(window):
            lacking = (missing(state), *kernel_log.lacking(window))
            return unknown(NAME, "neither the conntrack table nor the kernel log was read", lacking)
    return _room(window, report)


def _report(window: Window) -> _Report:
    lines = kernel_log.lines(window, (FAMILY,))
    recent = [line for line in lines if line.age_s is not None and line.age_s <= DAY_S]
    batches = window.batches(Conntrack) or ()
    rows = [row for batch in batches for row in batch.rows]
    fullest = max(rows, key=lambda row: (_fill(row) or 0.0, row.count), default=None)
    return _Report(
        recent,
        [line for line in lines if line.age_s is None],
        [line for line in lines if line.age_s is not None and line.age_s > DAY_S],
        [line for line in recent if (line.age_s or 0.0) <= window.seconds],
        [step for _, step in steps(batches, type, over_gaps=True)],
        fullest,
        None if fullest is None else _fill(fullest),
        nics.counters(window, (ALLOWANCE,)),
    )


def _fill(row: Conntrack) -> float | None:
    """Fill in per cent; `None` if there is no limit or it is unknown."""
    return 100 * row.count / row.maximum if row.maximum else None


def _full(window: Window, summary: _Report, severity: Severity) -> Finding:
    start, end = _interval(window, summary)
    return Finding(
        NAME,
        Verdict.PRESENT,
        severity,
        _summary(summary),
        entities={"nic": names(counts.nic for counts in summary.allowance if counts.value)},
        start=start,
        end=end,
        evidence=tuple(_evidence(window, summary)),
        missing=kernel_log.lacking(window),
    )


def _interval(window: Window, summary: _Report) -> tuple[float | None, float | None]:
    """When it dropped something or was full, including lines from before the window."""
    moments = [line.wall_s for line in summary.recent or summary.older if line.wall_s is not None]
    for step in summary.steps:
        if (step.delta("early_drops") or 0) or (summary.dropped and step.delta("drops")):
            moments += [window.wall(step.start_mono), window.wall(step.end_mono)]
    for batch in window.batches(Conntrack) or ():
        moments += [batch.wall_s for row in batch.rows if (_fill(row) or 0.0) >= FULL.value]
    if any(counts.moved for counts in summary.allowance):
        moments += [window.start, window.end]
    return min(moments, default=None), max(moments, default=None)


def _summary(summary: _Report) -> str:
    logged = [*summary.undated, *summary.recent] or summary.older
    if summary.dropped:
        dropped = count(summary.dropped, "packet")
        return f"the conntrack table is full and dropped {dropped}{_of(summary)}"
    if summary.while_watched:
        where = _where(summary.while_watched)
        return f"the kernel dropped packets while watched: conntrack table full{where}"
    if summary.recent:
        ago = duration(min(line.age_s or 0.0 for line in summary.recent))
        return f"the conntrack table was full {ago} ago and packets were dropped" + _where(logged)
    if summary.undated:
        return "the conntrack table was full at an unknown time" + _where(logged)
    if summary.is_full:
        out = summary.moved("early_drops")
        evicted = f", {count(out, 'entry', 'entries')} evicted to make room" if out else ""
        return f"the conntrack table is full{_of(summary)}{evicted}"
    if any(counts.moved for counts in summary.allowance):
        nics_hit = ", ".join(counts.nic for counts in summary.allowance if counts.moved)
        return f"the cloud instance's conntrack limit is full: packets of {nics_hit} were dropped"
    if (summary.fill or 0.0) >= NEAR.value:
        return f"the conntrack table is nearly full{_of(summary)}"
    if summary.older:
        return "the conntrack table was full, more than 24 h ago" + _where(logged)
    return "the cloud instance's conntrack limit was full at some time since the driver was loaded"


def _of(summary: _Report) -> str:
    row = summary.fullest
    if row is None or summary.fill is None:
        return ""
    return f" ({row.count:,} of {row.maximum:,}, {summary.fill:.0f} %)"


def _is_here(line: Line) -> bool:
    """Is it about the node's own network, and not a container's?"""
    return line.number("netns") is None


def _where(lines: Sequence[Line]) -> str:
    if any(map(_is_here, lines)):
        return ""
    spaces = dict.fromkeys(str(line.number("netns")) for line in lines)
    more = f" (and {len(spaces) - 1} more)" if len(spaces) > 1 else ""
    return f" in network namespace {next(reversed(spaces))}{more}" if spaces else ""


def _evidence(window: Window, summary: _Report) -> Iterable[Evidence]:
    yield from _counted(summary)
    lines = [*summary.undated, *summary.recent] or summary.older
    reach = kernel_log.reach(window)
    if lines and reach is not None:
        yield Evidence(
            "last kernel message",
            lines[-1].event.message,
            "nothing",
            f"{count(len(lines), 'line')}, rate-limited",
            reach.origin,
            None,
            "it is about another network namespace than the counters"
            if lines[-1].text("netns")
            else "the line belongs to another boot",
        )
    for counts in summary.allowance:
        old, now = "they happened long ago", "the instance is of a small type"
        yield counts.evidence(now if counts.moved else old, of="packets ")


def _counted(summary: _Report) -> Iterable[Evidence]:
    row = summary.fullest
    if row is None:
        return
    limit = f"of {row.maximum:,}" if row.maximum else "without a limit"
    fill = f" ({summary.fill:.0f} %)" if summary.fill is not None else ""
    yield Evidence(
        "tracked connections, at most",
        f"{row.count:,} {limit}{fill}",
        f"< {NEAR.value:.0f} %",
        "entries",
        "nf_conntrack_count, nf_conntrack_max",
        summary.fill if summary.fill is not None else row.count,
        "another network namespace has a table of its own",
    )
    for field, what, wrong_if in (
        ("drops", "packets dropped, table full", "they lost a race (insert_failed)"),
        ("early_drops", "entries evicted from a full table", "they were stale"),
        ("insert_failed", "entries that lost a race (not a full table)", "DNS look-ups do that"),
    ):
        number = summary.moved(field)
        if number or (field == "drops" and getattr(row, field) is not None):
            yield Evidence(what, f"{number:,}", "0", "while watched", _SOURCE, number, wrong_if)


def _room(window: Window, report: _Report) -> Finding:
    reach = kernel_log.reach(window)
    evidence = list(_counted(report))
    if reach is not None:
        limited = "lines of this kind are rate-limited with others"
        evidence.append(reach.no_lines("full tables in the kernel log", limited))
    evidence += [
        counts.evidence("the driver was loaded again since", of="packets ")
        for counts in report.allowance
    ]
    row = report.fullest
    if row is not None:
        most = f" of {row.maximum:,}" if row.maximum else ""
        summary = f"{row.count:,}{most} tracked connections at most"
    else:
        summary = f"0 full conntrack tables {reach.words if reach else 'by the driver'}"
    lacking = [*kernel_log.lacking(window)]
    if row is None:
        lacking.append(missing(window.why_missing(Conntrack)))
    return absent(NAME, summary, evidence, lacking)
