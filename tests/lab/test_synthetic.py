"""Recordings made up on purpose: valid, plausible, repeatable, and found out by the detectors."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.synthetic import write
from sexton.model.chain import Strength
from sexton.model.diagnosis import Exit
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent, Controller
from sexton.model.rows.cpu import CoreTimes, Interrupt, RunQueue, SoftirqCount, SoftnetCpu
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.net import NetDevice, NicCounter, TcpCounters
from sexton.model.rows.recorder import Alarm
from sexton.model.rows.task import Process, Thread
from sexton.model.rows.unit import Unit
from sexton.record.triggers import Triggers
from sexton.store.pins import pins_in
from sexton.store.recording import Recording
from tests.support.synthetic import CHAIN, INCIDENT, counters, incident, made, small

STARVED_ONLY = frozenset(CHAIN[2:])


def test_the_incident_is_found_out_with_its_unit_core_and_queue():
    found = incident()
    chains = {chain.findings: chain for chain in found.diagnosis.chains}
    assert CHAIN in chains
    (walk,), (reset,) = found.told.of("zombie_walk"), found.told.of("nic_reset")
    by_id = found.diagnosis.by_id
    assert by_id["crash_looping_unit"].entities["unit"] == ("ecs.service",)
    assert by_id["zombie_memcgs"].entities["unit"] == ("ecs.service",)
    assert by_id["saturated_core"].entities["core"] == (walk.entities["core"],)
    assert by_id["saturated_core"].entities["task"] == (walk.entities["task"],)
    assert by_id["starved_napi"].entities["queue"] == (reset.entities["queue"],)
    assert by_id["nic_resets"].entities["core"] == (walk.entities["core"],)
    strengths = {link.id: link.strength for link in chains[CHAIN].links}
    assert strengths["crash_loop_leaves_zombies"] is Strength.PROVEN
    assert strengths["slow_stats_burn_core"] is Strength.LIKELY
    assert strengths["burnt_core_starves_napi"] is Strength.PROVEN
    assert strengths["starved_napi_resets_nic"] is Strength.PROVEN
    against = [words for link in chains[CHAIN].links for words in link.against]
    assert against == ["TCP loss began 7.0 s before NIC resets, with starved NAPI"]
    assert found.diagnosis.unexplained == ()


def test_findings_lie_where_they_were_planted():
    found = incident()
    (walk,), (reset,) = found.told.of("zombie_walk"), found.told.of("nic_reset")
    held = found.diagnosis.by_id["saturated_core"]
    assert held.start == pytest.approx(walk.start[1], abs=1.5)
    assert held.end == pytest.approx(walk.end[1], abs=1.5)
    assert found.diagnosis.by_id["nic_resets"].start == pytest.approx(reset.end[1], abs=0.01)


@pytest.mark.parametrize("seed", [2, 3])
def test_another_seed_is_another_node_with_the_same_illness(seed: int):
    found = made(small(*INCIDENT, seed=seed))
    (walk,) = found.told.of("zombie_walk")
    assert CHAIN in {chain.findings for chain in found.diagnosis.chains}
    assert found.diagnosis.by_id["saturated_core"].entities["core"] == (walk.entities["core"],)


@pytest.mark.parametrize("twin", ["healthy", "busy_user"])
def test_a_node_that_is_fine_is_called_healthy(twin: str):
    found = made(small(twin))
    assert found.diagnosis.exit is Exit.HEALTHY
    assert found.diagnosis.chains == ()


@pytest.mark.parametrize(
    ("twin", "chain"),
    [
        ("flood", ("softirq_flood", "saturated_core")),
        ("reset_without_zombies", ("nic_resets", "tcp_loss")),
    ],
)
def test_a_twin_has_a_chain_of_its_own_and_no_walk(twin: str, chain: tuple[str, ...]):
    found = made(small(twin))
    assert [item.findings for item in found.diagnosis.chains] == [chain]
    assert found.diagnosis.unexplained == ()


def test_zombies_that_starve_nobody_are_a_symptom_without_a_chain():
    found = made(small("zombies_without_starvation"))
    assert found.diagnosis.unexplained == ("zombie_memcgs",)
    assert found.diagnosis.chains == ()


def test_a_crash_loop_alone_leaves_zombies_and_starves_nobody():
    found = made(small("crash_loop"))
    told = {name for chain in found.diagnosis.chains for name in chain.findings}
    assert {"crash_looping_unit", "zombie_memcgs"} <= told
    assert not told & STARVED_ONLY


def test_busy_cores_are_busy_in_user_mode():
    window = made(small("busy_user")).window
    used = counters(window, CoreTimes, "user_ms")[(0,)]
    assert np.median(np.diff(used[100:260])) >= 980
    assert np.median(np.diff(used[:80])) < 900
    assert window.batches(Alarm) is None


def test_a_core_spends_each_second_once():
    window = incident().window
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    spent = {
        cpu: sum(np.diff(counters(window, CoreTimes, f"{name}_ms")[cpu]) for name in names)
        for cpu in counters(window, CoreTimes, "cpu")
    }
    assert len(spent) == 4
    assert all((item == 1000).all() for item in spent.values())
    shares = [counters(window, CoreTimes, "user_ms")[cpu] for cpu in spent]
    assert len({values[-1] - values[0] for values in shares}) == 4, "cores differ"


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (CoreTimes, ("user_ms", "system_ms", "idle_ms", "softirq_ms")),
        (SoftirqCount, ("timer", "net_rx", "sched", "rcu")),
        (SoftnetCpu, ("processed",)),
        (RunQueue, ("run_ns", "wait_ns", "timeslices")),
        (NetDevice, ("rx_bytes", "rx_packets", "tx_bytes", "tx_packets")),
        (TcpCounters, ("in_segments", "out_segments", "retransmitted_segments")),
    ],
)
def test_counters_only_grow_and_by_no_constant(kind: type[Row], names: tuple[str, ...]):
    window = incident().window
    for name in names:
        for thing, values in counters(window, kind, name).items():
            steps = np.diff(values)
            assert (steps >= 0).all(), (thing, name)
            assert len(set(steps.tolist())) > 2, (thing, name)


@pytest.mark.parametrize(
    ("kind", "names"), [(Process, ("user_ms", "system_ms")), (Thread, ("user_ms", "system_ms"))]
)
def test_a_task_never_takes_time_back(kind: type[Row], names: tuple[str, ...]):
    window = incident().window
    for name in names:
        found: dict[Any, list[int]] = defaultdict(list)
        for batch in window.batches(kind) or ():
            for row in batch.rows:
                key = (row.pid, getattr(row, "tid", 0), row.start_ms)  # type: ignore[attr-defined]
                found[key].append(getattr(row, name))
        assert all((np.diff(values) >= 0).all() for values in found.values())
        assert any(values[-1] > values[0] for values in found.values())


def test_processes_come_and_go_and_their_number_stays():
    batches = incident().window.batches(Process) or ()
    assert {len(batch.rows) for batch in batches} == {60}
    first, last = ({row.pid for row in batches[turn].rows} for turn in (0, -1))
    assert first - last
    assert last - first
    assert all(len({row.pid for row in batch.rows}) == 60 for batch in batches)


def test_the_drivers_counters_agree_with_the_interface():
    window = incident().window
    batches = window.batches(NicCounter) or ()
    moved = {
        row.counter: row.value - before.value
        for row, before in zip(batches[-1].rows, batches[0].rows, strict=True)
    }
    packets = counters(window, NetDevice, "rx_packets")[("eth0",)]
    assert sum(moved[f"queue_{queue}_rx_cnt"] for queue in range(4)) == packets[-1] - packets[0]
    assert moved["total_resets"] == moved["suspected_poll_starvation"] == 1
    assert moved["wd_expired"] == 0


def test_counts_of_the_dead_agree_with_restarts_and_events():
    window = incident().window
    dying = [batch.rows[0].dying for batch in window.batches(CgroupCensus) or ()]
    assert dying[0] is not None
    assert dying[-1] is not None
    events = window.all(CgroupEvent) or ()
    ecs = [event for event in events if event.path == "/system.slice/ecs.service"]
    deaths = [event for event in ecs if event.kind == "rmdir"]
    assert len({event.cgroup_id for event in deaths}) == len(deaths)
    assert abs(dying[-1] - dying[0] - len(deaths)) <= 8  # the ordinary dead come and go
    assert not any(event.kind == "release" for event in ecs)
    assert any(event.kind == "release" for event in events)
    unit = counters(window, Unit, "restarts")[("ecs.service",)]
    assert abs(unit[-1] - unit[0] - len(deaths)) <= 1
    memory = counters(window, Controller, "cgroups")[("memory",)]
    assert memory[-1] - memory[0] == pytest.approx(dying[-1] - dying[0], abs=1)


def test_an_alarm_raises_detail_for_a_minute():
    found = incident()
    raised = {row.kind: batch for batch in found.window.batches(Alarm) or () for row in batch.rows}
    assert set(raised) == {"held_core", "nic_reset", "zombie_memcgs"}
    (walk,) = found.told.of("zombie_walk")
    at = raised["held_core"].mono_s
    assert walk.start[0] + 2 <= at <= walk.end[0] + 1
    for kind in (Process, Interrupt, CgroupCensus):
        close = [
            b.mono_s for b in found.window.batches(kind) or () if at - 1 <= b.mono_s <= at + 60
        ]
        assert len(close) >= 60


def test_an_alarm_pins_the_minutes_around_it(tmp_path: Path):
    write(tmp_path, small(*INCIDENT))
    pins, problems = pins_in(tmp_path)
    assert problems == []
    assert {pin.kind for pin in pins} == {"held_core", "nic_reset", "zombie_memcgs"}
    held = next(pin for pin in pins if pin.kind == "held_core")
    assert any(held.holds(segment) for segment in Recording(tmp_path).segments)


def test_the_recorders_own_triggers_would_have_raised_the_same(tmp_path: Path):
    generated = write(tmp_path, small(*INCIDENT))
    watch = Triggers()
    raised = []
    for segment in Recording(tmp_path).segments:
        for kind in (CgroupCensus, CoreTimes, KernelEvent):
            raised += [one for batch in segment.batches(kind) for one in watch.feed(kind, batch)]
    news = {(alarm.kind, alarm.about): alarm for alarm in raised if not alarm.goes_on}
    alarms = {
        (row.kind, row.about): batch.mono_s
        for segment in Recording(tmp_path).segments
        for batch in segment.batches(Alarm)
        for row in batch.rows
    }
    bus = ("nic_reset", "0000:20:03.0")  # the driver's last line names the device alone
    leak = ("zombie_memcgs", "leak")  # by its rate; the made recording has the alarm by its number
    assert set(news) - {bus, leak} == set(alarms)
    for key, at in alarms.items():
        assert news[key].mono_s == pytest.approx(at, abs=0.5), key
    assert generated.of("zombie_walk")


def test_every_reading_is_listed_also_the_empty_ones():
    window = made(small("healthy")).window
    assert len(window.batches(CgroupEvent) or ()) == 360
    assert sum(not batch.rows for batch in window.batches(CgroupEvent) or ()) > 300
    assert len(window.batches(VmCounter) or ()) == 360
