"""Tables about cores: CoreTimes, ReadyTasks, SoftirqCount, SoftnetCpu, RunQueue."""

from __future__ import annotations

import numpy as np

from lab.synthetic.columns import Counters, SegmentTables
from lab.synthetic.network import Traffic
from lab.synthetic.plan import Array, Schedule, Ticks, overlap
from sexton.model.rows.cpu import CoreTimes, ReadyTasks, RunQueue, SoftirqCount, SoftnetCpu

#: Softirqs per second on one core: when idle, and in addition at full load.
_SOFTIRQS = {
    "timer": (40.0, 200.0),
    "net_tx": (0.05, 0.4),
    "block": (0.2, 6.0),
    "tasklet": (0.01, 0.5),
    "sched": (30.0, 260.0),
    "hrtimer": (0.02, 0.1),
    "rcu": (25.0, 180.0),
}


class Cores:
    """Cores with different and slowly varying load."""

    def __init__(self, schedule: Schedule, rng: np.random.Generator) -> None:
        self._schedule = schedule
        self._rng = rng
        cores = schedule.plan.cores
        self._base = np.clip(rng.beta(1.2, 3.0, cores) * 0.8, 0.01, 0.7)
        self._knot = np.ones(cores)
        self._counters = Counters(cores)

    def reset(self) -> None:
        self._counters.reset()

    def write(self, segment: SegmentTables, traffic: Traffic) -> None:
        ticks = segment.ticks
        held, soft = self._held(ticks)
        load = self._load(ticks)
        free = 1.0 - np.minimum(1.0, (held + soft) / ticks.dt)
        times = self._times(ticks, load * free, held, soft)
        cpu = np.arange(len(load))
        columns = {name: 10 * self._counters.add(name, time) for name, time in times.items()}
        when = segment.next_read_times()
        segment.same_entities(CoreTimes, when, {"cpu": cpu, **columns})
        busy = times["user_ms"] + times["system_ms"] + times["softirq_ms"] + times["nice_ms"]
        # As many tasks as the busy time implies, plus the reader itself.
        running = 1 + np.rint((busy / (100 * ticks.dt)).sum(axis=0)).astype(np.int64)
        ready = {"running": running[None], "blocked": np.zeros_like(running)[None]}
        segment.same_entities(ReadyTasks, when, ready)
        self._softirqs(segment, load * free, free, traffic)
        self._softnet(segment, free, soft, traffic)
        self._run_queues(segment, busy)

    def _load(self, ticks: Ticks) -> Array:
        """The share of user time per core and tick."""
        rng, cores = self._rng, len(self._base)
        start, self._knot = self._knot, rng.lognormal(0.0, 0.35, cores)
        way = np.linspace(0.0, 1.0, len(ticks.elapsed))
        wave = start[:, None] * (1 - way) + self._knot[:, None] * way
        noise = rng.gamma(6.0, 1 / 6.0, (cores, len(way)))
        load = np.clip(self._base[:, None] * wave * noise, 0.0, 0.95)
        if "busy_user" in self._schedule.plan.plant:
            seconds = self._schedule.plan.seconds
            busy = overlap(seconds / 4, seconds * 3 / 4, ticks) > 0
            load[: max(1, cores // 2), busy] = 1.0
        return np.asarray(load)

    def _held(self, ticks: Ticks) -> tuple[Array, Array]:
        """Seconds of each step in which a planted cause held a core in system time or softirq."""
        found = {kind: np.zeros((len(self._base), len(ticks.dt))) for kind in ("system", "softirq")}
        for hold in self._schedule.holds:
            found[hold.kind][hold.core] += overlap(hold.start, hold.end, ticks)
        return found["system"], found["softirq"]

    def _times(self, ticks: Ticks, load: Array, held: Array, soft: Array) -> dict[str, Array]:
        """Ticks of 10 ms per mode; a core's modes add up to the length of the step."""
        rng, shape = self._rng, load.shape
        total = np.broadcast_to(np.rint(100 * ticks.dt).astype(np.int64), shape)
        scale = np.maximum(total - 100 * (held + soft), 0.0)
        system = rng.binomial(scale.astype(np.int64), load * (1 - load) * 0.16 + 0.004)
        made = {
            "user_ms": rng.binomial(scale.astype(np.int64), load),
            "nice_ms": rng.poisson(0.0004 * scale),
            "system_ms": np.minimum(system + np.rint(100 * held).astype(np.int64), total),
            "iowait_ms": rng.poisson(0.0006 * scale),
            "irq_ms": np.zeros(shape, dtype=np.int64),
            "softirq_ms": rng.poisson(0.002 * scale) + np.rint(98 * soft).astype(np.int64),
            "steal_ms": rng.poisson(0.0001 * scale),
        }
        # Any excess over the step's length is taken from user time first, then from the rest.
        for name in ("user_ms", "nice_ms", "iowait_ms", "steal_ms", "softirq_ms", "system_ms"):
            over = np.maximum(sum(made.values()) - total, 0)
            made[name] = made[name] - np.minimum(over, made[name])
        made["idle_ms"] = total - sum(made.values())
        return made

    def _softirqs(self, segment: SegmentTables, load: Array, free: Array, traffic: Traffic) -> None:
        rng, dt = self._rng, segment.ticks.dt
        columns: dict[str, Array] = {"cpu": np.arange(len(load))}
        for name, (rest, more) in _SOFTIRQS.items():
            steps = rng.poisson((rest + more * load) * free * dt)
            columns[name] = self._counters.add(name, steps)
        polls = traffic.polls_by_core(len(load)) + rng.poisson(12.0 * free * dt)
        columns["net_rx"] = self._counters.add("net_rx", polls)
        segment.same_entities(SoftirqCount, segment.next_read_times(), columns)

    def _softnet(self, segment: SegmentTables, free: Array, soft: Array, traffic: Traffic) -> None:
        rng, dt = self._rng, segment.ticks.dt
        local = rng.poisson(30.0 * free * dt)
        zeros = np.zeros(free.shape, dtype=np.int64)
        steps = {
            "processed": traffic.packets_by_core(len(free)) + local,
            "dropped": rng.poisson(1500.0 * soft),
            "time_squeeze": rng.poisson(0.01 * free * dt + 2500.0 * soft),
            "received_rps": zeros,
            "flow_limit": zeros,
        }
        columns = {name: self._counters.add(name, step) for name, step in steps.items()}
        columns |= {"cpu": np.arange(len(free)), "backlog": zeros}
        segment.same_entities(SoftnetCpu, segment.next_read_times(), columns)

    def _run_queues(self, segment: SegmentTables, busy: Array) -> None:
        """In nanoseconds, not rounded to ticks."""
        rng, dt = self._rng, segment.ticks.dt
        run = np.maximum(busy * 1e7 + rng.normal(0, 4e6, busy.shape), 1e5 * dt)
        share = np.clip(busy / (100 * dt), 0.01, 1.0)
        steps = {
            "run_ns": run,
            "wait_ns": run * share * rng.gamma(2.0, 0.02, busy.shape)
            + rng.gamma(2.0, 2e4, busy.shape) * dt,
            "timeslices": rng.poisson((60 + 1500 * share) * dt),
        }
        columns = {name: self._counters.add(name, step) for name, step in steps.items()}
        segment.same_entities(
            RunQueue, segment.next_read_times(), {"cpu": np.arange(len(busy)), **columns}
        )
