"""Look-alikes: what their counters did, said as loudly when they moved as when they did not."""

from __future__ import annotations

from sexton.explain.against import look_alikes
from sexton.model.cgroup import CgroupThrottle
from sexton.model.cpu import SoftnetCpu
from sexton.model.memory import Pressure, VmCounter
from sexton.model.net import TcpCounters
from tests.support.windows import make_window


def rows(moved: int) -> list:
    tcp = dict.fromkeys(
        ("established_resets", "attempt_fails", "timeouts", "aborts_on_timeout"), 0
    ) | dict.fromkeys(("lost_retransmits", "listen_drops", "in_segments"), 0)
    return [
        VmCounter("pgscan_direct", 100 + moved),
        VmCounter("pgmajfault", 50 + 10 * moved),
        CgroupThrottle("/kube\x1bpods", 10, 5 + moved, 0),
        SoftnetCpu(0, 1, 3 + moved, 4 + moved, None, None, None),
        Pressure("memory", "some", 0.0, 0.0, 0.0, 1000 + 10_000 * moved),
        TcpCounters(out_segments=1000 + 100 * moved, retransmitted_segments=10 + moved, **tcp),
    ]


def test_quiet_look_alikes_are_told_as_quiet():
    said = look_alikes(make_window([(0.0, rows(0)), (10.0, rows(0))]))
    assert said == (
        "direct reclaim none",
        "CPU quota none",
        "packet flood no",
        "memory pressure 0.0 %",
        "major page faults 0 a second",
    )


def test_those_that_moved_are_told_with_their_numbers():
    said = look_alikes(make_window([(0.0, rows(0)), (10.0, rows(7))]))
    assert said == (
        "direct reclaim 7 pages scanned",
        "CPU quota stopped /kube\\x1bpods 7 times",
        "packet backlog dropped 7, squeezed 7 times",
        "memory pressure 0.7 %",
        "major page faults 7 a second",
        "TCP retransmits 1.0 %",
    )


def test_what_was_not_read_twice_is_not_told():
    assert look_alikes(make_window([(0.0, rows(0))])) == ()
    assert look_alikes(make_window([])) == ()


def test_a_counter_that_went_backwards_says_nothing():
    said = look_alikes(make_window([(0.0, rows(9)), (10.0, rows(0))]))
    assert not any("reclaim" in each or "pressure" in each or "faults" in each for each in said)


def test_what_was_found_does_not_speak_against_anything():
    window = make_window([(0.0, rows(0)), (10.0, rows(7))])
    said = look_alikes(window, {"softirq_flood", "tcp_loss"})
    assert not any("backlog" in each or "TCP" in each for each in said)
    assert len(said) == len(look_alikes(window)) - 2
