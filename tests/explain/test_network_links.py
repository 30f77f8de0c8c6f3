"""From a reset, a flood or a full table to lost connections, and from those to a dead job."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.explain.links.jobs import dropped_connections_kill_job, nic_reset_kills_job
from sexton.explain.links.network import (
    flood_drops_packets,
    flood_starves_napi,
    full_conntrack_drops_connections,
    nic_reset_drops_connections,
    starved_napi_drops_connections,
)
from sexton.model.chain import Strength
from sexton.model.rows.cpu import SoftnetCpu
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import NetDevice, Nic, TcpCounters
from sexton.model.rows.recorder import Mark
from tests.explain.making import EMPTY, evidence, finding, window


def tcp(**moved: int) -> TcpCounters:
    names = ("in_segments", "out_segments", "retransmitted_segments", "established_resets")
    names += ("attempt_fails", "timeouts", "aborts_on_timeout", "lost_retransmits", "listen_drops")
    return TcpCounters(**{name: moved.get(name, 0) for name in names})


def nic(name: str) -> Nic:
    return Nic(name, True, "ena", "2", "0000:05", "up")


def strength(link: Any) -> Strength | None:
    return link.strength if link else None


def around(timeouts: int, *others: str, before: int = 0) -> Any:
    """TCP from well before a reset at 100 to well after it."""
    return window(
        {
            -50: [tcp(), nic("eth0"), *map(nic, others)],
            89: [tcp(timeouts=before)],
            99: [tcp(timeouts=before)],
            131: [tcp(timeouts=before + timeouts)],
        }
    )


RESET = finding("nic_resets", (100.0, 100.0), nic=("eth0",))


@pytest.mark.parametrize(
    ("begins", "expected"),
    [
        (101.0, Strength.PROVEN),
        (92.0, Strength.PROVEN),  # of what was lost from the reset on
        (129.0, Strength.PROVEN),
        (80.0, None),
        (140.0, None),
        (None, None),
    ],
)
def test_connections_are_lost_around_the_reset_or_not_by_it(begins, expected):
    loss = finding("tcp_loss", None if begins is None else (begins, begins + 5))
    link = nic_reset_drops_connections.join(RESET, loss, around(12))
    assert strength(link) is expected


def test_what_was_lost_before_the_reset_is_not_its_effect():
    loss = finding("tcp_loss", (92.0, 105.0))
    link = nic_reset_drops_connections.join(RESET, loss, around(12))
    assert link.since == 100.0
    assert link.sentence.startswith("12 TCP timeouts after the reset")
    assert link.against == ("TCP loss began 8.0 s before NIC resets",)
    # All of it was lost before: then something else lost it.
    rows = {-50: [tcp(), nic("eth0")], 92: [tcp()], 98: [tcp(timeouts=9)], 100: [tcp(timeouts=9)],
            131: [tcp(timeouts=9)]}  # fmt: skip
    assert nic_reset_drops_connections.join(RESET, loss, window(rows)) is None
    exact = nic_reset_drops_connections.join(RESET, finding("tcp_loss", (99.0, 105.0)), around(12))
    assert (exact.since, exact.against) == (None, ())


def starving(start: float, end: float) -> Any:
    return finding("starved_napi", (start, end), nic=("eth0",), queue=("eth0:5",), core=("5",))


@pytest.mark.parametrize(
    ("waits", "begins", "expected"),
    [
        ((92.0, 100.0), 93.0, Strength.PROVEN),
        ((92.0, 100.0), 89.5, Strength.PROVEN),  # the reading before the loss was at 89
        ((92.0, 100.0), 110.0, None),
        ((120.0, 125.0), 93.0, None),
    ],
)
def test_a_queue_that_is_not_polled_loses_what_is_lost_meanwhile(waits, begins, expected):
    rows = {-50: [tcp(), nic("eth0")], 89: [tcp()], 93: [tcp(timeouts=3)], 99: [tcp(timeouts=9)],
            131: [tcp(timeouts=9)]}  # fmt: skip
    loss = finding("tcp_loss", (begins, 105.0))
    link = starved_napi_drops_connections.join(starving(*waits), loss, window(rows))
    assert strength(link) is expected
    if link is not None:
        assert "TCP timeouts in the 8.0 s in which eth0:5 was not polled" in link.sentence
        assert (link.since, link.against) == (92.0 if begins < 90 else None, ())


def test_of_several_interfaces_none_is_proven_to_be_the_way():
    loss = finding("tcp_loss", (101.0, 105.0))
    assert strength(nic_reset_drops_connections.join(RESET, loss, around(12, "eth1"))) is (
        Strength.LIKELY
    )
    assert strength(nic_reset_drops_connections.join(RESET, loss, around(0))) is Strength.LIKELY
    assert strength(nic_reset_drops_connections.join(RESET, loss, EMPTY)) is Strength.LIKELY


def test_loss_before_the_reset_speaks_against_it():
    loss = finding("tcp_loss", (101.0, 105.0))
    assert not nic_reset_drops_connections.join(RESET, loss, around(12)).against
    link = nic_reset_drops_connections.join(RESET, loss, around(12, before=90))
    assert "90 timeouts in the 120 s before" in link.against[0]


def test_each_reset_of_the_log_counts_and_not_only_the_first():
    lines = [
        KernelEvent("p", "nic_reset", "reset", None, at, {"nic": "eth0"}) for at in (100.0, 5_000.0)
    ]
    other = KernelEvent("p", "nic_reset", "reset", None, 3_000.0, {"nic": "eth1"})
    seen = window({5_001: [*lines, other]})
    resets = finding("nic_resets", (100.0, 5_000.0), nic=("eth0",))
    for begins, expected in ((5_002.0, Strength.LIKELY), (3_001.0, None), (102.0, Strength.LIKELY)):
        loss = finding("tcp_loss", (begins, begins + 3))
        assert strength(nic_reset_drops_connections.join(resets, loss, seen)) is expected


def test_a_queue_that_only_waited_is_no_reset():
    waited = KernelEvent("p", "nic_starved", "q 5", None, 3_000.0, {"nic": "eth0", "queue": 5})
    reset = KernelEvent("p", "nic_reset", "reset", None, 100.0, {"nic": "eth0"})
    seen = window({3_001: [reset, waited]})
    resets = finding("nic_resets", (100.0, 100.0), nic=("eth0",))
    loss = finding("tcp_loss", (3_002.0, 3_004.0))
    assert nic_reset_drops_connections.join(resets, loss, seen) is None


@pytest.mark.parametrize(
    ("died", "job", "expected"),
    [
        (130.0, "job 17 died", Strength.LIKELY),
        (130.0, "job 17: ObjectFetchTimedOutError", Strength.PROVEN),
        (400.0, "job 17: ObjectFetchTimedOutError", Strength.POSSIBLE),
        (103.0, "job 17 died", Strength.LIKELY),
        (90.0, "job 17 died", None),
        (2_000.0, "job 17 died", None),
    ],
)
def test_a_job_dies_after_its_connections_and_not_before(died, job, expected):
    loss = finding("tcp_loss", (100.0, 110.0))
    death = finding("job_deaths", (died, died), job=(job,))
    assert strength(dropped_connections_kill_job.join(loss, death, EMPTY)) is expected


def test_the_death_after_the_loss_is_found_among_others():
    seen = window({50: [Mark("job 1 died")], 120: [Mark("job 2 died")], 125: [Mark("lunch")]})
    deaths = finding("job_deaths", (50.0, 120.0), job=("job 1 died", "job 2 died"))
    link = dropped_connections_kill_job.join(finding("tcp_loss", (100.0, 110.0)), deaths, seen)
    assert (link.strength, "10.0 s after" in link.sentence) == (Strength.LIKELY, True)


def test_a_mark_that_names_another_death_speaks_against_it():
    death = finding("job_deaths", (120.0, 120.0), job=("job 2 OOMKilled",))
    link = dropped_connections_kill_job.join(finding("tcp_loss", (100.0, 110.0)), death, EMPTY)
    assert link.against == ('"job 2 OOMKilled" names another cause of death',)


@pytest.mark.parametrize(
    ("died", "seen", "expected"),
    [
        (130.0, EMPTY, Strength.POSSIBLE),
        (130.0, window({1: [tcp()]}), Strength.POSSIBLE),
        (130.0, window({1: [tcp()], 200: [tcp()]}), None),
        (90.0, EMPTY, None),
        (2_000.0, EMPTY, None),
    ],
)
def test_a_reset_answers_for_a_job_only_where_nobody_counted_what_tcp_lost(died, seen, expected):
    death = finding("job_deaths", (died, died), job=("job 17: connection lost",))
    assert strength(nic_reset_kills_job.join(RESET, death, seen)) is expected


FLOOD = finding("softirq_flood", (100.0, 120.0), core=("5",), nic=("eth0",))
LOSS = finding("tcp_loss", (105.0, 110.0))


def taken_in(dropped: int | None, device: int | None, again: int = 0) -> Any:
    def rows(part: float) -> list[Any]:
        made: list[Any] = [tcp(retransmitted_segments=int(again * part))]
        if dropped is not None:
            made.append(SoftnetCpu(5, 1, int(dropped * part), 0, None, None, None))
            made.append(SoftnetCpu(6, 1, int(999 * part), 0, None, None, None))
        if device is not None:
            made.append(NetDevice("eth0", 0, 0, 0, int(device * part), 0, 0, 0, 0))
        return made

    return window({99: rows(0), 111: rows(1)})


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (taken_in(40, 0), Strength.PROVEN),
        (taken_in(0, 40), Strength.LIKELY),
        (taken_in(None, 40), Strength.LIKELY),
        (taken_in(0, 0), None),
        (taken_in(0, None), None),
        (EMPTY, Strength.POSSIBLE),
    ],
)
def test_what_a_flood_drops_is_counted_on_its_core_or_interface(seen, expected):
    assert strength(flood_drops_packets.join(FLOOD, LOSS, seen)) is expected


def test_a_flood_after_the_loss_or_long_before_it_dropped_nothing_of_it():
    for span in ((50.0, 60.0), (200.0, 210.0)):
        assert flood_drops_packets.join(FLOOD, finding("tcp_loss", span), taken_in(40, 0)) is None


def test_more_lost_than_dropped_speaks_against_the_flood():
    assert not flood_drops_packets.join(FLOOD, LOSS, taken_in(40, 0, again=30)).against
    link = flood_drops_packets.join(FLOOD, LOSS, taken_in(40, 0, again=3_000))
    assert "3,000 TCP retransmits" in link.against[0]


@pytest.mark.parametrize(
    ("begins", "entities", "expected"),
    [
        (110.0, {"core": ("5",)}, Strength.LIKELY),
        (110.0, {"core": ("6",), "nic": ("eth0",)}, Strength.POSSIBLE),
        (110.0, {"core": ("6",), "nic": ("eth1",)}, None),
        (50.0, {"core": ("5",)}, None),
        (500.0, {"core": ("5",)}, None),
    ],
)
def test_a_poll_waits_behind_a_flood_of_its_own_core(begins, entities, expected):
    starved = finding("starved_napi", (begins, begins + 3), **entities)
    assert strength(flood_starves_napi.join(FLOOD, starved, EMPTY)) is expected


def test_a_core_that_lost_nothing_speaks_against_the_wait_behind_it():
    starved = finding("starved_napi", (110.0, 112.0), core=("5",))
    assert not flood_starves_napi.join(FLOOD, starved, taken_in(40, 0)).against
    assert flood_starves_napi.join(FLOOD, starved, taken_in(0, 0)).against


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        ([evidence("packets dropped, table full", 12)], Strength.PROVEN),
        (
            [evidence("said last", value="nf_conntrack: table full, dropping packet")],
            Strength.PROVEN,
        ),
        ([evidence("packets dropped, table full", 0)], Strength.POSSIBLE),
        ([evidence("eth0 conntrack_allowance_exceeded", 3)], Strength.LIKELY),
        ([], Strength.POSSIBLE),
    ],
)
def test_a_full_table_drops_by_its_own_count_or_words(evidence, expected):
    full = finding("conntrack_full", (100.0, 120.0), evidence=evidence)
    assert strength(full_conntrack_drops_connections.join(full, LOSS, EMPTY)) is expected
    for span in ((20.0, 30.0), (200.0, 210.0)):
        late = finding("tcp_loss", span)
        assert full_conntrack_drops_connections.join(full, late, EMPTY) is None


def test_no_failed_connection_speaks_against_a_full_table():
    full = finding("conntrack_full", (100.0, 120.0))
    seen = window({99: [tcp()], 111: [tcp(attempt_fails=4)]})
    assert not full_conntrack_drops_connections.join(full, LOSS, seen).against
    still = window({99: [tcp()], 111: [tcp()]})
    assert full_conntrack_drops_connections.join(full, LOSS, still).against
