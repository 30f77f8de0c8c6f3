"""Aligned on given instants: which cores and functions are different around them?"""

from __future__ import annotations

import numpy as np
import pytest

from sexton.profile.spikes import SpikeOptions, find

from .simulated import FIRST, SECOND, Stall, Wander, bursty, simulate, steady


def instants(*seconds: float) -> tuple[int, ...]:
    return tuple(round((FIRST + second) * SECOND) for second in seconds)


def test_one_event_is_enough() -> None:
    # A transmit queue times out five seconds after its core began to stall.
    capture = simulate(np.random.default_rng(0), steady(4, 300, 0.3), (Stall(2, 145.2, 4.0),))
    found = find(capture, SpikeOptions(at=instants(150.4)))
    (spike,) = found.spikes
    assert spike.cpus == (2,)
    assert spike.events == instants(150.4)
    assert spike.onset_ns / SECOND - FIRST == pytest.approx(145.2, abs=0.1)
    assert spike.end_ns / SECOND - FIRST == pytest.approx(149.2, abs=0.1)
    assert spike.grew[0].name == "mem_cgroup_iter"
    assert spike.path is not None
    assert spike.path.frames[0] == "kubelet"
    assert spike.note == "in 1 of 1 events"
    assert spike.calm_windows >= 20
    assert spike.busy > spike.normal + 0.1
    assert found.problems == []


def test_several_events_show_what_one_alone_does_not() -> None:
    random = np.random.default_rng(4)
    events = (60.5, 140.5, 220.5, 300.5, 380.5)
    busy = bursty(random, 4, 480, Wander(0.8, -1.5, 0.8))
    stalls = tuple(Stall(1, event - 5, 3.0, 0.55) for event in events)
    capture = simulate(random, busy, stalls)
    assert find(capture, SpikeOptions()).spikes == ()
    (spike,) = find(capture, SpikeOptions(at=instants(*events))).spikes
    assert spike.cpus == (1,)
    assert spike.grew[0].name == "mem_cgroup_iter"
    assert spike.onset_ns / SECOND - FIRST == pytest.approx(55.5, abs=0.3)
    assert "of 5 events" in spike.note


@pytest.mark.whole
def test_instants_at_which_nothing_happens_find_nothing() -> None:
    told = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        capture = simulate(random, bursty(random, 4, 300, Wander(0.8, -1.5, 0.8)))
        found = find(capture, SpikeOptions(at=instants(*random.uniform(20, 280, 1 + seed % 4))))
        told += bool(found.spikes)
    assert told <= 5


def test_work_that_changes_at_the_same_load_is_found_by_its_function() -> None:
    # A full core in the kernel before and after: only the functions differ.
    receive = ("ksoftirqd/0", "run_ksoftirqd", "net_rx_action", "napi_poll")
    starved = ("kubelet", "housekeep", "entry_SYSCALL_64", "do_syscall_64", "mem_cgroup_iter")
    stalls = (
        Stall(0, 0.0, 200.0, 1.0, {receive: 1.0}, instead=True),
        Stall(0, 102.0, 5.0, 1.0, {starved: 1.0}, instead=True),
    )
    capture = simulate(np.random.default_rng(0), steady(1, 200, 0.5), stalls)
    assert find(capture, SpikeOptions()).spikes == ()
    (spike,) = find(capture, SpikeOptions(at=instants(108.0))).spikes
    assert "no core deviates in load" in spike.note
    assert spike.grew[0].name == "mem_cgroup_iter"
    assert spike.q == spike.grew[0].q


def test_a_stall_in_the_kernel_of_a_full_core_is_found() -> None:
    stall = Stall(1, 95.0, 4.0, 0.95, instead=True)
    capture = simulate(np.random.default_rng(1), steady(2, 200, 0.97), (stall,))
    (spike,) = find(capture, SpikeOptions(at=instants(100.0))).spikes
    assert spike.cpus == (1,)
    assert spike.in_kernel
    assert spike.kernel > spike.normal_kernel + 0.1
    assert spike.onset_ns / SECOND - FIRST == pytest.approx(95.0, abs=0.1)


def test_events_outside_of_the_capture_are_named() -> None:
    capture = simulate(np.random.default_rng(0), steady(2, 200, 0.3), (Stall(1, 96.0, 3.0),))
    found = find(capture, SpikeOptions(at=instants(-30.0, 100.0, 260.5)))
    assert found.problems == [
        "event outside the capture, 30 s before its start",
        "event outside the capture, 61 s after its end",
    ]
    assert [spike.cpus for spike in found.spikes] == [(1,)]
    assert found.spikes[0].events == instants(100.0)
    none = find(capture, SpikeOptions(at=instants(-30.0)))
    assert none.spikes == ()
    assert len(none.problems) == 1


def test_a_capture_too_short_for_calm_windows_is_reported() -> None:
    capture = simulate(np.random.default_rng(0), steady(2, 30, 0.3))
    found = find(capture, SpikeOptions(at=instants(15.0)))
    assert found.spikes == ()
    assert found.problems == ["too short: only 1 calm window of 12 s"]
    assert found.cells == 0  # "inconclusive" is no "no spikes"
    short = SpikeOptions(at=instants(15.0), window_ns=(2 * SECOND, SECOND))
    assert find(capture, short).problems == []


def test_cores_that_deviate_in_the_same_way_are_one_spike() -> None:
    stalls = tuple(Stall(core, 145.2, 4.0) for core in (1, 3))
    capture = simulate(np.random.default_rng(0), steady(4, 300, 0.3), stalls)
    (spike,) = find(capture, SpikeOptions(at=instants(150.0))).spikes
    assert spike.cpus == (1, 3)
