"""TCP sends much of its data twice: segments get lost, or connections are cut off.

**What is seen.** TCP's own counters (`/proc/net/snmp`, `/proc/net/netstat`) second by second: how
many segments were sent again, against how many were sent, in the worst three to ten seconds;
retransmission time-outs, lost retransmissions, and connections that were given up because nobody
answered. What is sent again to *open* a connection (SYN) is left out where the kernel counts it: an
agent that keeps knocking at a dead address is no loss.

**Why it hurts.** Each loss costs a round trip, each time-out 0.2 s and then double. A connection
that is given up is an error in some job: a lost actor, a broken pipe, a fetch that timed out.

**What would make it wrong.** The counters are those of one network namespace: pods with a network
of their own are not in them. Traffic over loopback is, and makes a loss elsewhere look smaller. The
other end may be to blame, or anything between: the counters do not say which. A peer that is
switched off makes its connections retransmit as a loss would, a few times each. A segment or two
sent again are ordinary everywhere, one in a hundred over the internet.

**Check by hand.** ``nstat -z TcpRetransSegs TcpOutSegs TcpExtTCPTimeouts TcpExtTCPAbortOnTimeout``
twice, ``ss -ti`` for the connections with ``retrans:``, ``ip -s link`` for drops on this side.

**What to do.** Look for what dropped packets here at that moment: a reset (`nic_resets`), a core
that did not poll (`starved_napi`), too many packets (`softirq_flood`), a full table
(`conntrack_full`). Where nothing did, ask the other end and the network between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sexton.detect.registry import detector, unknown
from sexton.detect.threshold import Threshold
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.net import TcpCounters
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.steps import Step, steps

NAME = "tcp_loss"
LASTING = Threshold("lasting", 3, "s", "a switch that overflows for a moment loses less long")
STRETCH = Threshold(
    "stretch", 10, "s", "an interface that is reset is away for seconds; a minute averages it away"
)
SOME = Threshold(
    "some", 10, "segments sent again", "a peer that vanished gives up to six in ten seconds"
)
NOTED = Threshold("noted", 1, "% sent again", "usual over the internet, ten times a data centre's")
BUSY = Threshold(
    "busy", 500, "segments in a stretch", "of fewer than 50 a second a share means nothing"
)
LOSSY = Threshold(
    "lossy", 5, "% sent again", "from about there on TCP's throughput falls to a fraction"
)
CUT_OFF = Threshold(
    "cut off", 25, "% sent again", "with a quarter sent again hardly anything gets through"
)
MANY = Threshold(
    "many", 20, "segments sent again", "of those cut off: several connections at once, not one peer"
)
GIVEN_UP = Threshold(
    "given up",
    5,
    "connections in a stretch",
    "one may be a peer switched off; five at once are not",
)
_ALL = (LASTING, STRETCH, SOME, NOTED, BUSY, LOSSY, CUT_OFF, MANY, GIVEN_UP)
#: Readings come a little early or late.
EARLY, LATE = 0.9, 1.1
_SOURCE = "/proc/net/snmp, /proc/net/netstat"


class _Stretch(NamedTuple):
    """Neighbouring readings; of each counter what it moved by, `None` where nobody counts it.

    `given_up` are connections that were established: how many at least.
    """

    start: float
    end: float
    sent: int
    again: int
    timeouts: int | None
    given_up: int

    @property
    def share(self) -> float:
        """Of everything sent, in per cent. What is sent again is not counted as sent."""
        return 100 * self.again / (self.sent + self.again) if self.again else 0.0

    @property
    def is_noted(self) -> bool:
        return (self.again >= SOME.value and self.share >= NOTED.value) or self.given_up > 0

    @property
    def hurts(self) -> bool:
        lossy = self.sent + self.again >= BUSY.value and self.share >= LOSSY.value
        is_cut_off = self.again >= MANY.value and self.share >= CUT_OFF.value
        lasts = self.end - self.start >= LASTING.value * EARLY
        return (lasts and (lossy or is_cut_off)) or self.given_up >= GIVEN_UP.value

    @property
    def weight(self) -> tuple[bool, bool, float, int]:
        """Much and a great part of it: three seconds cut off, not ten with those among them."""
        return self.hurts, self.is_noted, self.again * self.share, self.given_up


@detector(needs=(TcpCounters,), thresholds=_ALL)
def detect(window: Window) -> Finding:
    """The worst stretch, and how it compares with the whole."""
    batches = window.batches(TcpCounters) or ()
    found = [step for _, step in steps(batches, type)]
    if not found:
        lacking = Missing("two readings of TCP's counters", "sexton diagnose --seconds 10")
        return unknown(NAME, "one reading cannot tell what was lost when", (lacking,))
    worst = max(_stretches(found), key=lambda each: each.weight)
    whole = _sum([step for _, step in steps(batches, type, over_gaps=True)])
    if not worst.is_noted:
        return _sound(window, whole, worst)
    start, end = _around(found, worst)
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING if worst.hurts else Severity.INFO,
        _summary(worst, sum(_given_up(each) for each in found if start <= each.start_mono < end)),
        start=window.wall(start),
        end=window.wall(end),
        evidence=tuple(_evidence(worst, whole, found)),
    )


def _stretches(found: Sequence[Step[TcpCounters]]) -> Iterable[_Stretch]:
    """Of every reading the three and the ten seconds up to it, as far as none is missing."""
    for length in (LASTING.value, STRETCH.value):
        first = 0
        for last, step in enumerate(found):
            if last and found[last - 1].end_mono != step.start_mono:
                first = last
            while first < last and step.end_mono - found[first].start_mono > length * LATE:
                first += 1
            yield _sum(found[first : last + 1])


def _sum(some: Sequence[Step[TcpCounters]]) -> _Stretch:
    return _Stretch(
        some[0].start_mono,
        some[-1].end_mono,
        sum(each.delta("out_segments") or 0 for each in some),
        sum(map(_again, some)),
        _total(some, "timeouts"),
        sum(map(_given_up, some)),
    )


def _again(step: Step[TcpCounters]) -> int:
    """Segments sent again on connections that stood, as far as that is counted apart."""
    every = step.delta("retransmitted_segments") or 0
    return max(every - (step.delta("syn_retransmits") or 0), 0)


def _given_up(step: Step[TcpCounters]) -> int:
    """Established connections given up, at least: one that was never made is counted as a failed
    attempt too."""
    return max((step.delta("aborts_on_timeout") or 0) - (step.delta("attempt_fails") or 0), 0)


def _total(some: Iterable[Step[TcpCounters]], field: str) -> int | None:
    moved = [delta for each in some if (delta := each.delta(field)) is not None]
    return sum(moved) if moved else None


def _around(found: Sequence[Step[TcpCounters]], worst: _Stretch) -> tuple[float, float]:
    """From when to when it went on without a break, the worst stretch among it."""
    lost = [each for each in found if _sum((each,)).share >= NOTED.value or _given_up(each)]
    inside = [each for each in lost if worst.start <= each.start_mono < worst.end]
    start = inside[0].start_mono if inside else worst.start
    end = inside[-1].end_mono if inside else worst.end
    for each in reversed(lost):
        if each.end_mono == start:
            start = each.start_mono
    for each in lost:
        if each.start_mono == end:
            end = each.end_mono
    return start, end


def _summary(worst: _Stretch, given_up: int) -> str:
    gave = f", {count(given_up, 'connection')} given up" if given_up else ""
    return (
        f"{count(worst.again, 'TCP segment')} sent again in {duration(worst.end - worst.start)},"
        f" {worst.share:.{_digits(worst.share)}f} % of what was sent{gave}"
    )


def _digits(share: float) -> int:
    return 0 if share >= 10 else 1 if share >= 1 else 2


def _evidence(
    worst: _Stretch, whole: _Stretch, found: Sequence[Step[TcpCounters]]
) -> Iterable[Evidence]:
    yield _shares("segments sent again, worst stretch", worst)
    if whole.end - whole.start > 2 * (worst.end - worst.start):
        yield _shares("segments sent again, all readings", whole)
    inside = [each for each in found if worst.start <= each.start_mono < worst.end]
    rest = f"in {duration(worst.end - worst.start)}"
    for field, what, normal, wrong_if in (
        ("timeouts", "retransmission time-outs", "a few", "a peer was switched off"),
        ("lost_retransmits", "segments lost when sent again", "0", "it was reordered, not lost"),
        ("syn_retransmits", "knocks at a closed door (SYN again)", "a few", "a peer was down"),
    ):
        number = _total(inside, field)
        if number:
            yield Evidence(what, f"{number:,}", normal, rest, _SOURCE, number, wrong_if)
    if whole.given_up:
        yield Evidence(
            "established connections given up",
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
        f"{some.again:,} to {some.sent:,} sent ({some.share:.{_digits(some.share)}f} %)",
        f"< {NOTED.value:.0f} %",
        f"in {duration(some.end - some.start)}",
        _SOURCE,
        some.share,
        "loopback traffic hides a loss elsewhere; a peer that is gone looks like one",
    )


def _sound(window: Window, whole: _Stretch, worst: _Stretch) -> Finding:
    sent = whole.sent + whole.again
    if whole.again:
        text = f"{whole.again:,} of {count(sent, 'TCP segment')} sent again"
    else:
        text = f"{count(sent, 'TCP segment')} sent, none again"
    return Finding(
        NAME,
        Verdict.ABSENT,
        Severity.INFO,
        f"{text} in {duration(window.seconds)}",
        evidence=(_shares("segments sent again, worst stretch", worst),),
    )
