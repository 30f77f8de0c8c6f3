"""TCP retransmits much of its data: segments get lost, or connections are cut off.

**What is seen.** TCP's own counters (`/proc/net/snmp`, `/proc/net/netstat`) second by second: how
many segments were retransmitted, against how many were sent, in the worst three to ten seconds;
retransmission timeouts, lost retransmissions, and connections that were aborted because the peer
did not answer. What is retransmitted to *open* a connection (SYN) is left out where the kernel
counts it: an agent that keeps connecting to a dead address is not loss.

**Why it hurts.** Each loss costs a round trip, each timeout 0.2 s and then double. A connection
that is aborted is an error in some job: a lost actor, a broken pipe, a fetch that timed out.

**What would make it wrong.** The counters are those of one network namespace: pods with a network
of their own are not in them. Traffic over loopback is, and makes a loss elsewhere look smaller. The
cause may be the other end or anything in between: the counters do not show which. A peer that is
switched off makes its connections retransmit as a loss would, a few times each. A segment or two
retransmitted are ordinary everywhere, one in a hundred over the internet.

**Check by hand.** ``nstat -z TcpRetransSegs TcpOutSegs TcpExtTCPTimeouts TcpExtTCPAbortOnTimeout``
twice, ``ss -ti`` for the connections with ``retrans:``, ``ip -s link`` for drops on this side.

**What to do.** Look for what dropped packets here at that moment: a reset (`nic_resets`), a core
that did not poll (`starved_napi`), too many packets (`softirq_flood`), a full table
(`conntrack_full`). Where nothing did, check the peer and the network in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from sexton.detect.findings import absent, not_seen, too_few_readings
from sexton.detect.registry import Averages, Threshold, detector
from sexton.detect.runs import around
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.net import TcpCounters
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.rates import F64, Steps, hidden_s, lasts, steps_of, stretches, sums

NAME = "tcp_loss"

LASTING = Threshold("lasting", 3, "s", "a switch that overflows loses packets for less time")
STRETCH = Threshold(
    "stretch",
    10,
    "s",
    "an interface that is reset is down for seconds; a minute averages that away",
)
SOME = Threshold("some", 10, "retransmits", "a peer that vanished causes up to six in ten seconds")
NOTED = Threshold(
    "noted", 1, "% retransmitted", "usual over the internet, ten times a data centre's"
)
BUSY = Threshold("busy", 500, "segments in a stretch", "below 50 per second a share means nothing")
LOSSY = Threshold(
    "lossy", 5, "% retransmitted", "from about here TCP's throughput falls to a fraction"
)
CUT_OFF = Threshold(
    "cut off", 25, "% retransmitted", "with a quarter retransmitted hardly anything gets through"
)
MANY = Threshold("many", 20, "retransmits", "several connections cut off at once, not one peer")
GIVEN_UP = Threshold(
    "given up",
    5,
    "connections in a stretch",
    "one may be a peer that was switched off; five at once are not",
)
_ALL = (LASTING, STRETCH, SOME, NOTED, BUSY, LOSSY, CUT_OFF, MANY, GIVEN_UP)
#: Readings come a little late.
LATE = 1.1
#: Stretches that are weighed one by one, of each sort.
_WEIGHED = 200
_COUNTERS = (
    "out_segments", "retransmitted_segments", "syn_retransmits", "aborts_on_timeout",
    "attempt_fails", "timeouts", "lost_retransmits",
)  # fmt: skip
_SOURCE = "/proc/net/snmp, /proc/net/netstat"


class _Stretch(NamedTuple):
    """Consecutive readings, and how far each counter moved; `None` if the kernel does not count it.

    `given_up` is a lower bound: established connections that were aborted.
    """

    start: float
    end: float
    sent: int
    again: int
    timeouts: int | None
    given_up: int

    @property
    def share(self) -> float:
        """Retransmits as a share of new and retransmitted segments, in percent."""
        return 100 * self.again / (self.sent + self.again) if self.again else 0.0

    @property
    def share_text(self) -> str:
        digits = 0 if self.share >= 10 else 1 if self.share >= 1 else 2
        return f"{self.share:.{digits}f} %"

    @property
    def is_noted(self) -> bool:
        return (self.again >= SOME.value and self.share >= NOTED.value) or self.given_up > 0

    @property
    def hurts(self) -> bool:
        lossy = self.sent + self.again >= BUSY.value and self.share >= LOSSY.value
        is_cut_off = self.again >= MANY.value and self.share >= CUT_OFF.value
        long = lasts(self.end - self.start, LASTING.value)
        return (long and (lossy or is_cut_off)) or self.given_up >= GIVEN_UP.value

    @property
    def weight(self) -> tuple[bool, bool, float, int]:
        """Prefers much loss at a high share: three seconds cut off, not ten that include them."""
        return self.hurts, self.is_noted, self.again * self.share, self.given_up


def _hidden_s(window: Window) -> float:
    """Seconds without a reading in which enough was lost for a stretch that hurts. Nothing more is
    said of them: in an hour a few connections are always aborted."""
    found = _losses(window, over_gaps=True)
    lossy = found.again / min(MANY.value, BUSY.value * LOSSY.value / 100)
    lost = np.maximum(lossy, found.given_up / GIVEN_UP.value)
    return hidden_s(window, (found.start, found.end), lost)


def _ruled_out(window: Window) -> str:
    whole = _whole(window) if not _hidden_s(window) else None
    return f"TCP loss ({whole.share_text} retransmits)" if whole is not None and whole.sent else ""


@detector(
    needs=(TcpCounters,),
    thresholds=_ALL,
    title="TCP loss",
    story="Connections lost packets",
    lanes=("tcp", "nics", "events"),
    about=(),
    answers={"job": 2},
    ruled_out=_ruled_out,
    ends_jobs=True,
    averages=Averages((TcpCounters,), LASTING, "lost segments"),
)
def detect(window: Window) -> Finding:
    """The worst stretch, and how it compares with the whole."""
    found, whole = _losses(window), _whole(window)
    if whole is None:
        what = "two readings of TCP's counters"
        return too_few_readings(NAME, "one reading does not show what was lost when", what)
    both = (_worst(found, length.value) for length in (LASTING, STRETCH))
    worst = max(both, key=lambda stretch: stretch.weight)
    if not worst.is_noted:
        return _sound(window, whole, worst)
    start, end = _around(found, worst)
    inside = (found.start >= start) & (found.start < end)
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING if worst.hurts else Severity.INFO,
        _summary(worst, int(found.given_up[inside].sum())),
        start=window.wall(start),
        end=window.wall(end),
        evidence=tuple(_evidence(worst, whole, found)),
    )


class _Losses(NamedTuple):
    """Every step: segments sent and retransmitted on established connections, and established
    connections given up, at least. `moved` has the counters themselves."""

    start: F64
    end: F64
    sent: F64
    again: F64
    given_up: F64
    moved: Mapping[str, F64]


def _losses(window: Window, *, over_gaps: bool = False) -> _Losses:
    return window.keep(("tcp losses", over_gaps), lambda: _read(window, over_gaps))


def _read(window: Window, over_gaps: bool) -> _Losses:
    steps = steps_of(window.columns(TcpCounters, _COUNTERS), over_gaps=over_gaps)
    if not steps.things:
        nothing = np.empty(0)
        return _Losses(nothing, nothing, nothing, nothing, nothing, {})
    known = ~np.isnan(np.stack([array[0] for array in steps.moved.values()])).all(axis=0)
    moved = {name: value[0][known] for name, value in steps.moved.items()}
    counted = {name: np.nan_to_num(value) for name, value in moved.items()}
    return _Losses(
        steps.start[known],
        steps.end[known],
        counted["out_segments"],
        # They include SYN retransmits, if the kernel counts those.
        np.maximum(counted["retransmitted_segments"] - counted["syn_retransmits"], 0),
        # A connection that was never established also counts as a failed attempt.
        np.maximum(counted["aborts_on_timeout"] - counted["attempt_fails"], 0),
        moved,
    )


def _worst(found: _Losses, length: float) -> _Stretch:
    """The heaviest of the stretches of so many seconds that end at each reading."""
    first = stretches(found.start, found.end, length * LATE)
    sent, again, given_up = (
        sums(array, first) for array in (found.sent, found.again, found.given_up)
    )
    timeouts = sums(found.moved["timeouts"], first)
    # Most stretches are nowhere near: only the heaviest of each sort are weighed one by one.
    weight = again * again / np.maximum(sent + again, 1)
    some = np.argsort(-weight, kind="stable")[:_WEIGHED].tolist()
    some += np.argsort(-given_up, kind="stable")[:_WEIGHED].tolist()
    some += np.argsort(-again, kind="stable")[:_WEIGHED].tolist()
    counted = not np.isnan(found.moved["timeouts"]).all()
    made = (
        _Stretch(
            float(found.start[first[at]]),
            float(found.end[at]),
            int(sent[at]),
            int(again[at]),
            int(timeouts[at]) if counted else None,
            int(given_up[at]),
        )
        for at in sorted(set(some))
    )
    return max(made, key=lambda part: part.weight)


def _whole(window: Window) -> _Stretch | None:
    """All that was read; `None` with fewer than two readings."""
    found = _losses(window)
    if not len(found.end):
        return None
    timeouts = found.moved["timeouts"]
    return _Stretch(
        float(found.start[0]),
        float(found.end[-1]),
        int(found.sent.sum()),
        int(found.again.sum()),
        None if np.isnan(timeouts).all() else int(np.nansum(timeouts)),
        int(found.given_up.sum()),
    )


def _around(found: _Losses, worst: _Stretch) -> tuple[float, float]:
    """Start and end of the unbroken loss that includes the worst stretch."""
    share = 100 * found.again / np.maximum(found.sent + found.again, 1)
    lost = (share >= NOTED.value) | (found.given_up > 0)
    times = Steps(found.start, found.end, found.end, [], {})
    return around(times, lost, worst.start, worst.end)


def _summary(worst: _Stretch, given_up: int) -> str:
    gave = f", {count(given_up, 'connection')} aborted" if given_up else ""
    return (
        f"{count(worst.again, 'TCP retransmit')} in {duration(worst.end - worst.start)},"
        f" {worst.share_text} of what was sent{gave}"
    )


def _evidence(worst: _Stretch, whole: _Stretch, found: _Losses) -> Iterable[Evidence]:
    yield _shares("retransmits, worst stretch", worst)
    if whole.end - whole.start > 2 * (worst.end - worst.start):
        yield _shares("retransmits, all readings", whole)
    inside = (found.start >= worst.start) & (found.start < worst.end)
    rest = f"in {duration(worst.end - worst.start)}"
    for field, what, normal, wrong_if in (
        ("timeouts", "retransmission timeouts", "a few", "a peer was switched off"),
        ("lost_retransmits", "retransmits that were lost", "0", "it was reordered, not lost"),
        ("syn_retransmits", "SYN retransmits", "a few", "a peer was down"),
    ):
        number = int(np.nansum(found.moved[field][inside]))
        if number:
            yield Evidence(what, f"{number:,}", normal, rest, _SOURCE, number, wrong_if)
    if whole.given_up:
        yield Evidence(
            "established connections aborted",
            f"{whole.given_up:,}",
            "0",
            f"in {duration(whole.end - whole.start)}, at least",
            _SOURCE,
            whole.given_up,
            "the peers were switched off on purpose",
        )


def _shares(what: str, some: _Stretch) -> Evidence:
    return Evidence(
        what,
        f"{some.share_text} ({count(some.again, 'retransmit')}, {count(some.sent, 'new segment')})",
        f"< {NOTED.value:.0f} %",
        f"in {duration(some.end - some.start)}",
        _SOURCE,
        some.share,
        "loopback traffic hides a loss elsewhere; a peer that is gone looks like loss",
    )


def _sound(window: Window, whole: _Stretch, worst: _Stretch) -> Finding:
    sent = whole.sent + whole.again
    if whole.again:
        text = f"{whole.again:,} of {count(sent, 'TCP segment')} retransmitted"
    else:
        text = f"{count(sent, 'TCP segment')} sent, none retransmitted"
    evidence = _shares("retransmits, worst stretch", worst)
    lacking = not_seen("whether TCP lost much at a time", _hidden_s(window))
    return absent(NAME, f"{text} in {duration(window.seconds)}", [evidence], lacking)
