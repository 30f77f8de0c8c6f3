"""Knowing less makes nobody surer: hide any one table, and no other cause becomes confident."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from sexton.detect.registry import run_all
from sexton.detect.rows_read import witness
from sexton.explain.chains import find_links
from sexton.explain.diagnosis import diagnose
from sexton.model.chain import Link, Strength
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.cpu import CoreTimes, SoftnetCpu
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.net import TcpCounters
from sexton.model.rows.recorder import Mark
from sexton.model.rows.trace import StackCount
from sexton.model.window import Batch, Window
from tests.support.fixtures import FIXTURES
from tests.support.incident import CORE, UPTIME_S, WALL_S, incident
from tests.support.windows import load_window

WALK = ("mem_cgroup_node_nr_lru_pages", "memcg_numa_stat_show", "seq_read_iter")
KINDS = ("some", "full")
RECLAIM = ("shrink_lruvec", "shrink_node", "do_try_to_free_pages", "try_to_free_pages")
FLOOD = ("tcp_v4_rcv", "net_rx_action", "handle_softirqs")


def tables(window: Window) -> dict[type[Row], tuple[Batch, ...]]:
    return dict(window._batches)


def without(window: Window, *hidden: type[Row]) -> Window:
    kept = {kind: items for kind, items in tables(window).items() if kind not in hidden}
    return Window(kept, window.states.values(), window._providers)


def sampled(frames: tuple[str, ...]) -> Window:
    """The incident with stacks that show what held the core."""
    rows = tuple(
        StackCount(UPTIME_S + second, CORE, 2113, 2140, "kubelet", frames, 97)
        for second in range(2, 8)
    )
    batch = Batch(UPTIME_S + 10.0, WALL_S + 10.0, rows)
    return Window({**tables(incident()), StackCount: [batch]})


def reclaiming(frames: tuple[str, ...] = RECLAIM) -> Window:
    """A held core in reclaim, on a node that has zombies and a reader of statistics too."""
    seconds = range(11)
    vmstat = [
        _read(at, VmCounter("pgscan_direct", 90_000 * at), VmCounter("pgfault", 9 * at),
              VmCounter("pgscan_kswapd", 9_000 * at), VmCounter("pgmajfault", 0))
        for at in seconds
    ]  # fmt: skip
    pressed = [
        _read(at, *(Pressure("memory", kind, 0.0, 0.0, 0.0, 400_000 * at) for kind in KINDS))
        for at in seconds
    ]
    return Window({**tables(sampled(frames)), VmCounter: vmstat, Pressure: pressed})


def flooded() -> Window:
    """The held core is in softirq, and its backlog overflows."""
    window = incident()
    times = [
        replace(batch, rows=tuple(_flooded(row) if row.cpu == CORE else row for row in batch.rows))
        for batch in window.batches(CoreTimes) or ()
    ]
    net = [
        _read(at, SoftnetCpu(CORE, 200_000 * at, 900 * at, 80 * at, None, None, None))
        for at in range(11)
    ]
    return Window({**tables(sampled(FLOOD)), CoreTimes: times, SoftnetCpu: net})


def _flooded(row: CoreTimes) -> CoreTimes:
    return replace(row, system_ms=0, softirq_ms=row.system_ms)


def _read(second: int, *rows: Row) -> Batch:
    return Batch(float(UPTIME_S + second), WALL_S + second, rows)


def died() -> Window:
    """The incident to its end: connections time out and somebody marks a dead job."""
    tcp = [
        Batch(
            float(UPTIME_S + second),
            WALL_S + second,
            (_tcp(1_000 * second, 300 * max(second - 6, 0)),),
        )
        for second in range(11)
    ]
    mark = Batch(UPTIME_S + 9.5, WALL_S + 9.5, (Mark("job 17 died: ActorDiedError"),))
    return Window({**tables(sampled(WALK)), TcpCounters: tcp, Mark: [mark]})


def _tcp(sent: int, lost: int) -> TcpCounters:
    return TcpCounters(0, sent, lost, 0, 0, lost // 3, lost // 10, 0, 0)


def few_dead() -> Window:
    """The same walk over a crowd of the living."""
    census = CgroupCensus("v1", 1, "/m", "node", 68_680, 62_000, 6_680, "count", None)
    batch = Batch(UPTIME_S + 10.0, WALL_S + 10.0, (census,))
    return Window({**tables(sampled(WALK)), CgroupCensus: [batch]})


def fixture(name: str) -> Window:
    return load_window(FIXTURES / "detectors" / name)[0]


MADE: dict[str, Callable[[], Window]] = {
    "incident": incident,
    "without zombies": lambda: incident(zombies=False),
    "without a held core": lambda: incident(burning=False),
    "without resets": lambda: incident(resets=False),
    "without a loop": lambda: incident(looping=False),
    "stacks walk": lambda: sampled(WALK),
    "reclaiming": reclaiming,
    "the dead reclaimed": lambda: reclaiming(("mem_cgroup_iter", *RECLAIM)),
    "flooded": flooded,
    "job died": died,
    "few dead": few_dead,
    "flood": lambda: fixture("saturated_core/flood.json"),
}


def links_of(window: Window) -> tuple[Link, ...]:
    seen = witness(window)
    return find_links(run_all(seen), seen)


def surer(before: tuple[Link, ...], after: tuple[Link, ...]) -> Iterator[str]:
    """Links that became stronger, and new ones that are more than possible."""
    known = {(link.cause, link.effect): link.strength for link in before}
    for link in after:
        was = known.get((link.cause, link.effect))
        if was is not None and link.strength.rank > was.rank:
            yield f"{link.id}: {was} became {link.strength}"
        if was is None and link.strength is not Strength.POSSIBLE:
            yield f"{link.id}: {link.strength} out of nothing"


@pytest.mark.parametrize("name", MADE)
def test_hiding_a_table_makes_no_link_stronger_and_no_other_cause_confident(name):
    window = MADE[name]()
    before = links_of(window)
    hidden = set(tables(window))
    assert hidden
    for kind in hidden:
        told = list(surer(before, links_of(without(window, kind))))
        assert told == [], kind.__name__


@pytest.mark.whole
@pytest.mark.parametrize("name", MADE)
def test_hiding_a_table_names_no_new_root_with_confidence(name):
    window = MADE[name]()
    before = diagnose(window)
    told = {finding for chain in before.chains for finding in chain.findings}
    told |= {rival.cause for contest in before.contests for rival in contest.rivals}
    told |= {finding.id for finding in before.findings if finding.is_problem}
    for kind in tables(window):
        for chain in diagnose(without(window, kind)).chains:
            confident = chain.strength is not Strength.POSSIBLE
            assert chain.root in told or not confident, (kind.__name__, chain.root)


def test_the_twins_are_what_they_are_said_to_be():
    assert ("direct_reclaim", "saturated_core") in joined(reclaiming(), Strength.PROVEN)
    assert ("softirq_flood", "saturated_core") in joined(flooded(), Strength.PROVEN)
    assert ("slow_memcg_stats", "saturated_core") in joined(sampled(WALK), Strength.PROVEN)
    for window in (reclaiming(), flooded()):
        causes = {cause for cause, effect in joined(window) if effect == "saturated_core"}
        assert not causes & {"zombie_memcgs", "slow_memcg_stats"}
    assert ("zombie_memcgs", "saturated_core") not in joined(few_dead())


def joined(window: Window, strength: Strength | None = None) -> set[tuple[str, str]]:
    return {
        (link.cause, link.effect) for link in links_of(window) if strength in (None, link.strength)
    }


def test_the_whole_chain_to_the_dead_job_is_reported_and_falls_apart_without_its_sources():
    window = died()
    chain = diagnose(window).chains[0]
    assert chain.findings == (
        "crash_looping_unit",
        "zombie_memcgs",
        "slow_memcg_stats",
        "saturated_core",
        "starved_napi",
        "nic_resets",
        "tcp_loss",
        "job_deaths",
    )
    assert {link.id: link.strength for link in chain.links}["slow_stats_burn_core"] is (
        Strength.PROVEN
    )
    untold = diagnose(without(window, TcpCounters)).chains[0]
    assert untold.findings[-2:] == ("nic_resets", "job_deaths")
    assert untold.links[-1].strength is Strength.POSSIBLE
    unmarked = diagnose(without(window, Mark)).chains[0]
    assert unmarked.symptom == "tcp_loss"
