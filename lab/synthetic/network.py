"""Tables about the network: interfaces, queues, driver counters, interrupts and TCP."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lab.synthetic.columns import Counters, SegmentTables
from lab.synthetic.names import ENA_DEVICE, ENA_QUEUE
from lab.synthetic.plan import Array, Plan, Schedule, Ticks, overlap
from sexton.model.rows.cpu import Interrupt, IrqAffinity
from sexton.model.rows.net import NetDevice, Nic, NicCounter, NicQueue, TcpCounters
from sexton.store.schema import schema_of

DRIVER = "2.11.0g"
FIRST_IRQ = 56
_NAPI_HZ = 250


def bus(nic: int) -> str:
    return f"0000:{20 + nic}:03.0"


class Traffic:
    """Traffic of every queue in every step of one segment; the queues of all NICs in sequence."""

    def __init__(self, schedule: Schedule, ticks: Ticks, rates: Array, rng: np.random.Generator):
        plan = schedule.plan
        self.cores = np.arange(plan.nics * plan.queues) % plan.cores
        shape = (len(self.cores), len(ticks.dt))
        stalled, flooded = np.zeros(shape), np.zeros(shape)
        for hold in schedule.holds:
            seconds = overlap(hold.start, hold.end, ticks)
            if hold.kind == "system":
                stalled[self.cores == hold.core] += seconds
            else:
                flooded[hold.queue] += seconds
        for reset in schedule.resets:  # the whole device is down; a stalled queue already was
            stalled[: plan.queues] += overlap(*reset.down, ticks)
        self.stalled = np.minimum(stalled, ticks.dt)
        self.flooded = flooded
        flow = rates[:, None] * rng.gamma(4.0, 0.25, shape) * (ticks.dt - self.stalled)
        self.rx = rng.poisson(flow + 60_000.0 * flooded)
        self.tx = rng.poisson(flow * 0.8)
        self.polls = rng.poisson(self.rx / 6 + self.tx / 20)
        # The first packet of a stalled queue still raises an interrupt, which is not handled.
        self.irqs = rng.binomial(self.polls, 0.85) + rng.poisson(2.0 * stalled)
        self.tx_polls = rng.binomial(self.polls, 0.7)

    def polls_by_core(self, cores: int) -> Array:
        return _by_core(self.polls, self.cores, cores)

    def packets_by_core(self, cores: int) -> Array:
        return _by_core(self.rx, self.cores, cores)


def _by_core(values: Array, cores: Array, number: int) -> Array:
    found = np.zeros((number, values.shape[1]), dtype=np.int64)
    np.add.at(found, cores, values)
    return found


class Network:
    """The interfaces of a node, all ENA."""

    def __init__(self, schedule: Schedule, rng: np.random.Generator) -> None:
        plan = schedule.plan
        self._schedule, self._rng = schedule, rng
        self._rates = rng.lognormal(6.2, 0.8, plan.nics * plan.queues)
        self._queues = Counters(plan.nics * plan.queues)
        self._devices = Counters(plan.nics)
        self._links = Counters(plan.nics + 1)
        self._others = Counters(1)
        self._left = rng.integers(0, 40, plan.cores)

    def reset(self) -> None:
        for counters in (self._queues, self._devices, self._links, self._others):
            counters.reset()

    def traffic(self, ticks: Ticks) -> Traffic:
        return Traffic(self._schedule, ticks, self._rates, self._rng)

    def write(self, segment: SegmentTables, traffic: Traffic) -> None:
        steps = self._queue_steps(segment.ticks, traffic)
        self._net_device(segment, steps)
        self._counters(segment, steps)
        self._interrupts(segment, traffic)
        self._tcp(segment, traffic)
        self._once(segment)

    def _queue_steps(self, ticks: Ticks, traffic: Traffic) -> dict[str, Array]:
        rng = self._rng
        rx, tx = traffic.rx, traffic.tx
        stops = rng.poisson(0.002 * ticks.dt, rx.shape)
        missed = np.zeros(rx.shape, dtype=np.int64)
        for reset in self._schedule.resets:
            if reset.waited_s:
                hit = overlap(reset.at - 0.5, reset.at, ticks) > 0
                missed[reset.queue, hit] += rng.integers(5, 60)
        return {
            "tx_cnt": tx,
            "tx_bytes": _bytes(tx, 700, rng),
            "tx_queue_stop": stops,
            "tx_queue_wakeup": stops,
            "tx_napi_comp": traffic.tx_polls,
            "tx_tx_poll": traffic.polls,
            "tx_doorbells": rng.binomial(tx, 0.8),
            "tx_llq_buffer_copy": rng.binomial(tx, 0.3),
            "tx_missed_tx": missed,
            "tx_unmask_interrupt": traffic.irqs,
            "rx_cnt": rx,
            "rx_bytes": _bytes(rx, 900, rng),
            "rx_rx_copybreak_pkt": rng.binomial(rx, 0.35),
            "rx_csum_good": rng.binomial(rx, 0.995),
        }

    def _counters(self, segment: SegmentTables, steps: dict[str, Array]) -> None:
        plan, ticks = self._schedule.plan, segment.ticks
        n, per_nic = len(ticks.dt), len(ENA_DEVICE) + plan.queues * len(ENA_QUEUE)
        values = np.zeros((plan.nics, per_nic, n), dtype=np.uint64)
        for row, name in enumerate(ENA_DEVICE):
            values[:, row] = self._device(name, ticks)
        queues = values[:, len(ENA_DEVICE) :].reshape(plan.nics, plan.queues, len(ENA_QUEUE), n)
        for row, name in enumerate(ENA_QUEUE):
            if name in steps:
                total = self._queues.add(name, steps[name])
                queues[:, :, row] = total.reshape(plan.nics, plan.queues, n)
        jiffies = (ticks.mono * _NAPI_HZ).astype(np.int64) - self._rng.integers(
            0, 4, (plan.nics, plan.queues, n)
        )
        queues[:, :, ENA_QUEUE.index("tx_last_napi_jiffies")] = jiffies
        values[:, len(ENA_DEVICE) :] = queues.reshape(plan.nics, -1, n)
        names = [f"queue_{queue}_{name}" for queue in range(plan.queues) for name in ENA_QUEUE]
        columns = {
            "nic": [f"eth{nic}" for nic in range(plan.nics) for _ in range(per_nic)],
            "counter": [*ENA_DEVICE, *names] * plan.nics,
            "value": values.reshape(-1, n),
        }
        segment.same_entities(NicCounter, segment.next_read_times(), columns)

    def _device(self, name: str, ticks: Ticks) -> Array:
        """One device-wide counter, for every NIC."""
        rng, nics = self._rng, self._schedule.plan.nics
        if name == "conntrack_allowance_available":
            return np.asarray(136_812 - rng.integers(0, 900, (nics, len(ticks.dt))))
        steps = np.zeros((nics, len(ticks.dt)), dtype=np.int64)
        if name == "interface_up" and ticks.dt[0] == ticks.mono[0]:
            steps[:, 0] = 1
        if name == "ena_admin_q_completed_cmd" or name == "ena_admin_q_submitted_cmd":
            steps += ticks.elapsed.astype(np.int64) % 60 == 0
        for reset in self._schedule.resets:
            cause = "suspected_poll_starvation" if reset.waited_s else "wd_expired"
            if name in ("total_resets", "interface_down", cause):
                steps[0] += overlap(reset.at - 0.001, reset.at, ticks) > 0
            if name == "interface_up":
                steps[0] += overlap(reset.down[1] - 0.001, reset.down[1], ticks) > 0
        return self._devices.add(name, steps)

    def _net_device(self, segment: SegmentTables, steps: dict[str, Array]) -> None:
        plan, rng, dt = self._schedule.plan, self._rng, segment.ticks.dt
        n = len(dt)
        by_nic = {
            name: steps[name].reshape(plan.nics, plan.queues, n).sum(axis=1)
            for name in ("rx_bytes", "rx_cnt", "tx_bytes", "tx_cnt")
        }
        local = rng.poisson(400.0 * dt)[None, :]
        sent = _bytes(local, 300, rng)
        quiet = np.zeros((plan.nics + 1, n), dtype=np.int64)
        columns: dict[str, object] = {"name": ["lo", *(f"eth{nic}" for nic in range(plan.nics))]}
        for side in ("rx", "tx"):
            for name, own, mine in (("bytes", sent, "bytes"), ("packets", local, "cnt")):
                moved = np.concatenate([own, by_nic[f"{side}_{mine}"]])
                columns[f"{side}_{name}"] = self._links.add(f"{side}_{name}", moved)
            columns |= {f"{side}_errors": quiet, f"{side}_dropped": quiet}
        segment.same_entities(NetDevice, segment.next_read_times(), columns)

    def _interrupts(self, segment: SegmentTables, traffic: Traffic) -> None:
        plan, ticks = self._schedule.plan, segment.ticks
        fired = self._queues.add("irq", traffic.irqs)[:, ticks.scans]
        vectors = [(row.irq, row.irq_name, row.cpus[0]) for row in queue_rows(plan)]
        readings, lines = len(ticks.scans), len(vectors)
        counts = np.zeros((readings, lines, plan.cores), dtype=np.int64)
        counts[:, :, 0] = self._left[np.arange(lines) % plan.cores]  # before their affinity was set
        queue = 0
        for line, (_, name, core) in enumerate(vectors):
            if "Tx-Rx" in name:
                counts[:, line, core] += fired[queue]
                queue += 1
        offsets = pa.array(np.arange(readings * lines + 1, dtype=np.int32) * plan.cores)
        lists = schema_of(Interrupt).field("counts").type
        cpus = np.tile(np.arange(plan.cores), readings * lines)
        columns = {
            "irq": pa.array([str(irq) for irq, _, _ in vectors] * readings),
            "name": pa.array([name for _, name, _ in vectors] * readings),
            "cpus": pa.ListArray.from_arrays(offsets, pa.array(cpus), type=lists),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(counts.reshape(-1)), type=lists),
        }
        sizes = np.full(readings, lines)
        if readings:
            segment.varying_entities(
                Interrupt, segment.next_read_times(ticks.scans), sizes, columns
            )

    def _tcp(self, segment: SegmentTables, traffic: Traffic) -> None:
        rng, ticks = self._rng, segment.ticks
        lossy = np.zeros(len(ticks.dt))
        for reset in self._schedule.resets:
            lossy += overlap(reset.at - reset.waited_s, reset.at + 3, ticks)
        received, sent = traffic.rx.sum(axis=0), traffic.tx.sum(axis=0)
        steps = {
            "in_segments": received + rng.poisson(300.0 * ticks.dt),
            "out_segments": sent + rng.poisson(300.0 * ticks.dt),
            "retransmitted_segments": rng.poisson(0.0002 * sent + 900.0 * lossy),
            "established_resets": rng.poisson(0.02 * ticks.dt + 25.0 * lossy),
            "attempt_fails": rng.poisson(0.1 * ticks.dt + 4.0 * lossy),
            "timeouts": rng.poisson(0.05 * ticks.dt + 180.0 * lossy),
            "aborts_on_timeout": rng.poisson(0.001 * ticks.dt + 2.0 * lossy),
            "lost_retransmits": rng.poisson(0.002 * ticks.dt + 40.0 * lossy),
            "listen_drops": rng.poisson(0.0001 * ticks.dt),
            "syn_retransmits": (4.0 * lossy).astype(np.int64),
        }
        columns = {name: self._others.add(name, step[None, :]) for name, step in steps.items()}
        segment.same_entities(TcpCounters, segment.next_read_times(), columns)

    def _once(self, segment: SegmentTables) -> None:
        plan = self._schedule.plan
        rows = [Nic("lo", False, None, None, None, "unknown")]
        rows += [Nic(f"eth{nic}", True, "ena", DRIVER, bus(nic), "up") for nic in range(plan.nics)]
        segment.once(Nic, rows)
        queues = queue_rows(plan)
        segment.once(NicQueue, queues)
        every = tuple(range(plan.cores))
        segment.once(IrqAffinity, [IrqAffinity(row.irq, every, row.cpus) for row in queues])


def queue_rows(plan: Plan) -> list[NicQueue]:
    """Each NIC's interrupts: the management vector first, then one per queue."""
    rows = []
    irq = FIRST_IRQ
    for nic in range(plan.nics):
        name = f"eth{nic}"
        rows.append(NicQueue(name, None, "rxtx", irq, f"ena-mgmnt@pci:{bus(nic)}", (0,)))
        for queue in range(plan.queues):
            core = (nic * plan.queues + queue) % plan.cores
            text = f"{name}-Tx-Rx-{queue}"
            rows.append(NicQueue(name, queue, "rxtx", irq + 1 + queue, text, (core,)))
        irq += plan.queues + 1
    return rows


def _bytes(packets: Array, mean: int, rng: np.random.Generator) -> Array:
    spread = rng.normal(0, 1, packets.shape) * np.sqrt(packets) * mean * 0.6
    return np.asarray(np.maximum(packets * mean + spread, 60 * packets)).astype(np.int64)
