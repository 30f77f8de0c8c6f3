"""Planted stalls: are they found, when did they begin, and what grew in them?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from sexton.model.profile import Heat, Kind, Profile, empty_heat
from sexton.profile.spikes import SpikeOptions, find
from sexton.profile.spikes.spike import Spike

from .simulated import FIRST, SECOND, Simulated, Stall, Wander, bursty, periodic, simulate, steady

RUNS = 40
Load = Callable[[np.random.Generator], np.ndarray]


def at(spike: Spike) -> tuple[float, float]:
    """Onset and end in seconds of the capture."""
    return spike.onset_ns / SECOND - FIRST, spike.end_ns / SECOND - FIRST


@pytest.mark.parametrize(
    ("load", "extra", "instead"),
    [
        (lambda random: steady(2, 120, 0.02), 0.6, False),
        (lambda random: steady(2, 120, 0.3), 0.6 / 0.7, False),
        (lambda random: steady(8, 120, 0.1), 0.6 / 0.9, False),
        (lambda random: bursty(random, 2, 120, Wander(0.8, -2, 0.5)), 0.8, False),
        (lambda random: steady(2, 120, 0.95), 0.95, True),
    ],
    ids=["idle", "third", "many", "bursty", "kernel-of-a-full-core"],
)
def test_stalls_of_some_seconds_are_found_with_their_onset_and_their_function(
    load: Load, extra: float, instead: bool
) -> None:
    found, first, errors = 0, 0, []
    for seed in range(RUNS):
        random = np.random.default_rng(seed)
        busy = load(random)
        length = random.uniform(2, 5)
        start = random.uniform(5, busy.shape[1] - 5 - length)
        stall = Stall(1, start, length, extra, instead=instead)
        spikes = find(simulate(random, busy, (stall,)), SpikeOptions()).spikes
        hits = [
            spike
            for spike in spikes
            if spike.cpus == (1,) and at(spike)[0] < start + length and at(spike)[1] > start
        ]
        found += bool(hits)
        if hits:
            errors.append(abs(at(hits[0])[0] - start))
            first += [growth.name for growth in hits[0].grew[:1]] == ["mem_cgroup_iter"]
    assert found >= 0.95 * RUNS
    assert first >= 0.95 * found
    assert np.median(errors) <= 0.1


def test_a_spike_has_its_core_functions_and_shares() -> None:
    capture = simulate(np.random.default_rng(5), steady(2, 120, 0.3), (Stall(1, 60.37, 4.2),))
    found = find(capture, SpikeOptions())
    (spike,) = found.spikes
    assert (found.cells, found.cores, found.seconds, found.found) == (240, 2, 120, 1)
    assert found.problems == []
    assert at(spike) == pytest.approx((60.37, 64.57), abs=0.1)
    assert spike.start_ns == (FIRST + 60) * SECOND
    assert spike.busy == pytest.approx(0.93, abs=0.06)
    assert spike.normal == pytest.approx(0.3, abs=0.04)
    assert spike.kernel == pytest.approx(0.7, abs=0.1)
    assert spike.q < 1e-4
    assert not spike.in_kernel
    assert spike.calm_windows == 20
    top = spike.grew[0]
    assert (top.name, top.kind) == ("mem_cgroup_iter", Kind.KERNEL)
    assert top.share == pytest.approx(0.9 * 0.7 * 0.9, abs=0.08)
    assert top.own_share == pytest.approx(0.65 * 0.7 * 0.9, abs=0.08)
    assert top.calm_share == 0
    names = [growth.name for growth in spike.grew]
    # What was called, then the way to it (nearest first), then the task.
    assert names[1] == "css_next_descendant_pre"
    assert names[2:6] == ["memcg_stat_show", "seq_read", "vfs_read", "do_syscall_64"]
    assert names[-1] == "kubelet"
    assert spike.tested >= len(names)
    assert spike.path is not None
    assert spike.path.frames[0] == "kubelet"
    assert spike.path.frames[-1] == "mem_cgroup_iter"
    assert spike.stacks[0].frames[-1] == "mem_cgroup_iter"
    assert spike.tasks[0][0] == "kubelet"
    assert spike.tasks[0][1] >= 100


def test_unchanged_functions_are_not_reported_as_grown() -> None:
    told = 0
    for seed in range(RUNS):
        stall = Stall(1, 60.0, 4.0)
        capture = simulate(np.random.default_rng(seed), steady(2, 120, 0.3), (stall,))
        (spike,) = find(capture, SpikeOptions()).spikes
        told += any(growth.name in ("serve", "parse", "render", "web") for growth in spike.grew)
    # The rate is 1 % among what is told, some ten functions each.
    assert told <= 0.1 * RUNS


def test_cores_that_stall_together_in_the_same_are_one_spike() -> None:
    stalls = tuple(Stall(core, 40.2, 4.0) for core in (0, 2, 3))
    capture = simulate(np.random.default_rng(3), steady(4, 120, 0.2), stalls)
    (spike,) = find(capture, SpikeOptions()).spikes
    assert spike.cpus == (0, 2, 3)
    assert at(spike)[0] == pytest.approx(40.2, abs=0.1)
    assert spike.grew[0].name == "mem_cgroup_iter"


def test_cores_that_stall_together_in_different_things_are_two_spikes() -> None:
    receive = ("ksoftirqd/1", "run_ksoftirqd", "net_rx_action", "napi_poll")
    stalls = (Stall(0, 40.2, 4.0), Stall(1, 40.2, 4.0, stacks={receive: 1.0}))
    capture = simulate(np.random.default_rng(3), steady(2, 120, 0.2), stalls)
    spikes = find(capture, SpikeOptions()).spikes
    assert {(spike.cpus, spike.grew[0].name) for spike in spikes} == {
        ((0,), "mem_cgroup_iter"),
        ((1,), "napi_poll"),
    }


def test_a_core_that_is_always_full_is_no_spike() -> None:
    busy = steady(2, 120, 0.2)
    busy[1] = 1.0
    found = find(simulate(np.random.default_rng(0), busy), SpikeOptions())
    assert found.spikes == ()
    assert found.problems == []


def test_a_core_always_busy_in_the_kernel_can_hide_a_spike_and_is_reported() -> None:
    spin = ("ksoftirqd/1", "run_ksoftirqd", "net_rx_action")
    full = Stall(1, 0.0, 120.0, 1.0, {spin: 1.0}, instead=True)
    found = find(simulate(np.random.default_rng(0), steady(2, 120, 0.2), (full,)), SpikeOptions())
    assert found.spikes == ()
    (problem,) = found.problems
    assert problem.startswith("on 1 of 2 cores no spike could be significant")


def test_the_strongest_come_first_and_their_number_is_limited() -> None:
    stalls = (Stall(0, 20.0, 2.0), Stall(1, 60.0, 5.0), Stall(2, 90.0, 3.5))
    capture = simulate(np.random.default_rng(0), steady(3, 150, 0.1), stalls)
    found = find(capture, SpikeOptions())
    assert [spike.cpus for spike in found.spikes] == [(1,), (2,), (0,)]
    few = find(capture, SpikeOptions(most=1))
    assert [spike.cpus for spike in few.spikes] == [(1,)]
    assert few.found == 3


def test_lost_seconds_are_reported_and_are_neither_idle_nor_spikes() -> None:
    lost = tuple((1, second) for second in (10, 11, 63))
    stalls = (Stall(1, 60.0, 6.0),)
    capture = simulate(np.random.default_rng(0), steady(2, 120, 0.3), stalls, lost=lost)
    found = find(capture, SpikeOptions())
    (spike,) = found.spikes
    assert at(spike) == pytest.approx((60.0, 66.0), abs=0.15)
    assert "some seconds were not sampled" in spike.note
    assert found.problems == ["3 of 240 core-seconds were not sampled"]


def without_idle(capture: Simulated) -> Simulated:
    """As a counter of cycles samples: a sleeping core gives nothing."""
    profile = capture.profile
    awake = np.array([thread.comm != "swapper" for thread in profile.threads])[profile.thread]
    columns = {
        name: getattr(profile, name)[awake]
        for name in ("time_ns", "cpu", "thread", "cgroup", "event", "node")
    }
    fewer = Profile(
        **columns,
        weight=None,
        threads=profile.threads,
        cgroups=(),
        events=profile.events,
        tree=profile.tree,
        facts=profile.facts,
    )
    return Simulated.of(fewer)


def test_a_second_without_samples_of_a_counter_that_stops_in_sleep_is_sleep() -> None:
    busy = steady(3, 120, 0.02)
    busy[2] = 0.5
    capture = simulate(np.random.default_rng(2), busy, (Stall(0, 30.5, 3.0), Stall(2, 80.3, 4.0)))
    found = find(without_idle(capture), SpikeOptions())
    assert [(spike.cpus, round(at(spike)[0], 1)) for spike in found.spikes] == [
        ((0,), 30.5),
        ((2,), 80.3),
    ]
    assert found.spikes[0].busy == pytest.approx(0.9, abs=0.06)


def test_ten_seconds_are_enough_or_reported_as_too_few() -> None:
    short = simulate(np.random.default_rng(0), steady(2, 5, 0.02))
    (problem,) = find(short, SpikeOptions()).problems
    assert problem.startswith("too short: 5 s on 2 cores")
    many = simulate(np.random.default_rng(1), steady(64, 10, 0.3))
    (problem,) = find(many, SpikeOptions(fdr=1e-6)).problems
    assert problem.startswith("too short: 10 s on 64 cores, no spike could be significant")
    works = simulate(np.random.default_rng(0), steady(2, 10, 0.02), (Stall(1, 4.3, 2.6),))
    (spike,) = find(works, SpikeOptions()).spikes
    assert spike.grew[0].name == "mem_cgroup_iter"
    assert spike.note


def test_no_data_is_reported() -> None:
    class Untimed:
        hertz = None

        def heats(self, start_ns: int | None, end_ns: int | None) -> Iterator[Heat]:
            yield empty_heat()

        def profiles(self, start_ns: int | None, end_ns: int | None) -> Iterator[Profile]:
            yield from ()

    assert find(Untimed(), SpikeOptions()).problems == ["no data: samples have no timestamps"]
    capture = simulate(np.random.default_rng(0), steady(2, 20, 0.1))
    (problem,) = find(capture, SpikeOptions(cpus=frozenset({7}))).problems
    assert problem == "no data: no samples on the chosen cores"


def test_times_that_make_no_sense_take_no_memory() -> None:
    capture = simulate(np.random.default_rng(0), steady(1, 20, 0.1))
    heat = next(iter(capture.heats(None, None)))
    far = heat.second.copy()
    far[-1] = 1 << 40
    broken = Heat(far, heat.cpu, heat.samples, heat.busy, heat.kernel, heat.cells)
    (problem,) = find(Simulated(capture.profile, broken), SpikeOptions()).problems
    assert problem == "no data: timestamps span months"


def test_one_event_is_analysed_alone() -> None:
    capture = simulate(np.random.default_rng(4), steady(2, 120, 0.2), (Stall(0, 50.1, 4.0),))
    (spike,) = find(capture, SpikeOptions(event="cpu-clock")).spikes
    assert at(spike)[0] == pytest.approx(50.1, abs=0.1)
    none = find(capture, SpikeOptions(event="cycles"))
    assert none.problems == ["no data: samples have no timestamps"]


def test_a_stall_on_a_core_with_a_cron_job_is_reported_besides_it() -> None:
    random = np.random.default_rng(8)
    busy = periodic(random, 2, 300, 20.0, 1.5)
    capture = simulate(random, busy, (Stall(1, 151.3, 5.0, 0.95),))
    found = find(capture, SpikeOptions())
    assert [spike.cpus for spike in found.spikes] == [(1,)]
    assert found.spikes[0].grew[0].name == "mem_cgroup_iter"
    (job,) = found.recurring
    assert job.regular
    assert job.interval_ns / SECOND == pytest.approx(20, abs=0.3)
    assert job.cpus == (0, 1)


def test_stalls_again_and_again_are_a_habit_with_an_example() -> None:
    random = np.random.default_rng(8)
    starts = (20, 47, 110, 130, 208, 295, 330, 381, 460, 540)
    stalls = tuple(Stall(1, start + 0.3, 2.4) for start in starts)
    found = find(simulate(random, steady(2, 600, 0.1), stalls), SpikeOptions())
    assert found.spikes == ()
    (habit,) = found.recurring
    assert habit.cpus == (1,)
    assert not habit.regular
    assert habit.times == len(starts)
    assert habit.example is not None
    assert habit.example.grew[0].name == "mem_cgroup_iter"


def test_only_the_start_of_a_long_stall_is_analysed() -> None:
    busy = steady(1, 1800, 0.1)
    capture = simulate(np.random.default_rng(1), busy, (Stall(0, 900.5, 100.0),))
    (spike,) = find(capture, SpikeOptions()).spikes
    assert at(spike) == pytest.approx((900.5, 1000.5), abs=0.1)
    assert "stacks of the first 60 s" in spike.note
    assert spike.grew[0].name == "mem_cgroup_iter"
