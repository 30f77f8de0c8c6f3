"""What stays of hours of network counters and quotas is what their detectors judge by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sexton.detect.detectors import conntrack_full, quota_throttling, softirq_flood, tcp_loss
from sexton.model.cgroup import CgroupThrottle
from sexton.model.cpu import CoreTimes, SoftnetCpu
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.net import Conntrack, TcpCounters
from sexton.model.row import Row
from sexton.model.window import Batch, Window
from sexton.replay import span
from sexton.replay import window as replay
from sexton.store.recording import Recording
from tests.support.recordings import WALL_S, write_sealed

PARTS, SECONDS = 6, 120
Make = Callable[[int], Sequence[Row]]


def both(place: Path, make: Make, every: int = 1) -> tuple[Window, Window]:
    """Twelve minutes in six segments, whole and condensed."""
    kinds = {type(row) for row in make(0)}
    for part in range(PARTS):
        batches: dict[type[Row], list[Batch[Any]]] = defaultdict(list)
        for at in range(part * SECONDS, (part + 1) * SECONDS, every):
            rows = make(at)
            for kind in kinds:
                some = tuple(row for row in rows if type(row) is kind)
                batches[kind].append(Batch(5000.0 + at, WALL_S + at, some))
        write_sealed(place, [batches], part + 1)
    recording = Recording(place)
    part = span.everything(recording)
    whole, condensed = (replay.window(recording, part, most).window for most in (10**9, 0))
    for kind in kinds - {Conntrack}:
        assert readings(condensed, kind) < 0.6 * readings(whole, kind)
    return whole, condensed


def readings(window: Window, kind: type[Row]) -> int:
    return len(window.batches(kind) or ())


def told(finding: Finding) -> tuple[Any, ...]:
    evidence = [(each.what, each.value) for each in finding.evidence]
    return finding.verdict, finding.severity, finding.summary, finding.start, finding.end, evidence


def tcp(bad: range, again: int, knocks: int = 0) -> Make:
    def make(at: int) -> Sequence[Row]:
        lost = sum(again for second in range(at) if second in bad)
        calm = at // 3
        every = 500 + lost + calm + knocks * at
        return [TcpCounters(9, 900 * at, every, 9, 9, lost, 0, 0, 0, 7 + knocks * at)]

    return make


@pytest.mark.parametrize("bad", [range(300, 304), range(355, 366), range(117, 123), range(0)])
def test_loss_is_judged_the_same_wherever_it_was(tmp_path: Path, bad: range):
    whole, condensed = both(tmp_path, tcp(bad, again=300, knocks=2))
    finding = tcp_loss.detect(condensed)
    assert told(finding) == told(tcp_loss.detect(whole))
    assert finding.verdict is (Verdict.PRESENT if bad else Verdict.ABSENT)
    if bad:
        assert finding.severity is Severity.WARNING
        assert finding.start == WALL_S + bad[0]


def test_recordings_from_before_knocks_were_counted_are_read(tmp_path: Path):
    def make(at: int) -> Sequence[Row]:
        lost = 300 * sum(second in range(300, 304) for second in range(at))
        return [TcpCounters(9, 900 * at, 500 + lost, 9, 9, lost, 0, 0, 0)]

    whole, condensed = both(tmp_path, make)
    assert told(tcp_loss.detect(condensed)) == told(tcp_loss.detect(whole))
    assert tcp_loss.detect(condensed).severity is Severity.WARNING


def test_a_minute_of_throttling_is_found_with_its_cgroup(tmp_path: Path):
    def make(at: int) -> Sequence[Row]:
        worse = sum(second in range(370, 430) for second in range(at))
        return [
            CgroupThrottle("/calm", 10 * at, at // 60, 100 * at),
            CgroupThrottle("/worse", 10 * at, 9 * worse, 800_000 * worse),
        ]

    whole, condensed = both(tmp_path, make, every=10)
    finding = quota_throttling.detect(condensed)
    assert told(finding) == told(quota_throttling.detect(whole))
    assert finding.severity is Severity.WARNING
    assert finding.entities["cgroup"] == ("/worse",)
    assert (finding.start, finding.end) == (WALL_S + 370, WALL_S + 430)


@pytest.mark.parametrize("bad", [range(300, 306), range(355, 366), range(0)])
def test_a_flood_is_judged_the_same_wherever_it_was(tmp_path: Path, bad: range):
    def make(at: int) -> Sequence[Row]:
        flooded = sum(second in bad for second in range(at))
        spent = 31 * at + at % 7 + 700 * flooded
        return [
            *(CoreTimes(core, 0, 0, 9 * at, 1, 0, 0, 10 * at + core, 0) for core in range(3)),
            CoreTimes(3, 0, 0, 50 * at, 1, 0, 0, spent, 0),
            SoftnetCpu(3, 900 * at + 400_000 * flooded, 90 * flooded, 0, 0, 0, 0),
        ]

    whole, condensed = both(tmp_path, make)
    finding = softirq_flood.detect(condensed)
    assert told(finding) == told(softirq_flood.detect(whole))
    assert finding.verdict is (Verdict.PRESENT if bad else Verdict.ABSENT)
    if bad:
        assert finding.severity is Severity.WARNING
        assert finding.start == WALL_S + bad[0]


def test_every_reading_of_the_table_of_connections_stays(tmp_path: Path):
    def make(at: int) -> Sequence[Row]:
        return [Conntrack(1000 if at == 410 else 100, 1000, 5 * (at > 410), 0, 0)]

    whole, condensed = both(tmp_path, make, every=10)
    assert readings(condensed, Conntrack) == readings(whole, Conntrack)
    assert told(conntrack_full.detect(condensed)) == told(conntrack_full.detect(whole))
    assert conntrack_full.detect(condensed).severity is Severity.CRITICAL
