"""How long network softirqs wait for their core, measured by BPF.

Two small programs sit at the raw tracepoints ``irq:softirq_raise`` and ``irq:softirq_entry``
(include/trace/events/irq.h; the vector's number is their one argument) and measure, per core and
for NET_TX and NET_RX only, the time from the oldest raise to the entry. There is no compiler, no
bpftrace and no child process: the programs are assembled here and loaded with bpf(2), which takes
2 ms. They live as long as this process. A reading, formatted::

    core 0  NET_RX  raises 91,204  waits 90,877  total 61 ms  longest 0.4 ms  pending -
    core 1  NET_RX  raises 17      waits 12      total 1.9 s  longest 3 us    pending 1.2 s

Quirks: several raises before one entry are one wait. A wait that began before the probe is seen
from its next raise on. Threaded NAPI (``/sys/class/net/*/threaded``) and busy polling raise no
softirq and are not seen. On a real-time kernel softirqs run in threads, and waiting for those is
counted too. A core that comes online starts from scratch: softirqs pending when it went offline
have moved to another core. A per-CPU map holds a value for every *possible* core, in their order,
which may have holes; rows are given for online cores, and for a vector from its first raise there.

The probe's cost inside the kernel is judged one second in ten and limited (`budget`): over 0.5 %
of any core it runs one second in ten, then not at all until the recorder raises an alarm by
``host.memo["alarm_until"]`` (monotonic seconds). While it is off there are no rows, never zeros. A
`ProbeCost` at every reading gives the mode and the reason. Where the kernel cannot measure (before
5.8, or without CAP_SYS_ADMIN) the cost is estimated from the number of events, and marked as such.

Without the probe, `/proc/softirqs` and `/proc/stat` still show a core that polled nothing while it
was held in the kernel, but only in whole seconds, and not whether anything waited.

>>> possible("0-1,4\\n")
(0, 1, 4)
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sexton.errors import SourceError, SourceMalformed
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.model.counters import delta, moved
from sexton.model.row import Row
from sexton.model.rows.cpu import ProbeCost, SoftirqCount, SoftirqWait
from sexton.sources.bpf import syscalls
from sexton.sources.bpf.budget import Duty, Orders, Price, events, price, settle
from sexton.sources.bpf.program import (
    TURN_BYTES,
    VALUE_BYTES,
    VECTORS,
    Tally,
    entry_program,
    raise_program,
    read_tally,
    without_raises,
)
from sexton.sources.procfs import softirqs
from sexton.sources.procfs.irq_affinity import cpu_list
from sexton.sources.registry import Reading, source

PATH = "bpf(2): softirq_raise, softirq_entry"
POSSIBLE = "/sys/devices/system/cpu/possible"
ONLINE = "/sys/devices/system/cpu/online"
#: Key of the time until which the recorder wants full detail, in monotonic seconds.
ALARM = "alarm_until"
#: Readings closer together than this are too short to measure the cost.
SHORTEST_SAMPLE_S = 0.5


def possible(content: str, path: str = POSSIBLE) -> tuple[int, ...]:
    """Parse a list of cores; at least one."""
    try:
        cpus = cpu_list(content)
    except ValueError:
        raise SourceMalformed(path, 1, "not a list of cores") from None
    if not cpus:
        raise SourceMalformed(path, 1, "an empty list of cores")
    return cpus


class Probe:
    """The programs and maps in the kernel, attached or not."""

    def __init__(self, cpus: int) -> None:
        self._size = cpus * VALUE_BYTES
        self._held: list[int] = []
        self._attached: list[int] = []
        self._turn = 1
        try:
            self._waits = self._hold(
                syscalls.create_map(syscalls.PERCPU_ARRAY, VALUE_BYTES, b"sexton_waits")
            )
            self._turns = self._hold(
                syscalls.create_map(syscalls.ARRAY, TURN_BYTES, b"sexton_turn")
            )
            entry = syscalls.load(entry_program(self._waits, self._turns), b"sexton_entry")
            self._entry = self._hold(entry)
            self._raise = self._hold(syscalls.load(raise_program(self._waits), b"sexton_raise"))
        except SourceError:
            self.close()
            raise

    @property
    def is_attached(self) -> bool:
        return bool(self._attached)

    def attach(self) -> None:
        """Start measuring. The entry first: a raise whose entry was missed would wait forever."""
        self.detach()
        syscalls.update(self._waits, without_raises(syscalls.lookup(self._waits, self._size)))
        self.next_turn()
        self._attached.append(syscalls.attach(b"softirq_entry", self._entry))
        self._attached.append(syscalls.attach(b"softirq_raise", self._raise))

    def detach(self) -> None:
        """Stop measuring; programs and counts stay."""
        while self._attached:
            os.close(self._attached.pop())

    def next_turn(self) -> int:
        """Start a new turn of longest waits; returns the one that ended."""
        ended = self._turn
        self._turn += 1
        syscalls.update(self._turns, struct.pack("=Q", self._turn))
        return ended

    def read(self) -> bytes:
        """The map's content, core after core."""
        return syscalls.lookup(self._waits, self._size)

    def runs(self) -> syscalls.Runs | None:
        """The cost of both programs together."""
        both = syscalls.runs(self._entry), syscalls.runs(self._raise)
        if both[0] is None or both[1] is None:
            return None
        return syscalls.Runs(both[0].run_ns + both[1].run_ns, both[0].times + both[1].times)

    def close(self) -> None:
        """Remove everything from the kernel."""
        self.detach()
        while self._held:
            os.close(self._held.pop())

    def _hold(self, descriptor: int) -> int:
        self._held.append(descriptor)
        return descriptor


class _Sample(NamedTuple):
    """The counters at the start of a sampled second; an open `stats` keeps the kernel measuring."""

    began_s: float
    stats: int | None
    runs: syscalls.Runs | None
    network: dict[int, int]
    others: tuple[SoftirqCount, ...]


@source(
    PATH,
    rows=(SoftirqWait, ProbeCost),
    period_s=1.0,
    grant=f"sudo sexton diagnose --probe  # {syscalls.GRANT}",
    opt_in="--probe",
)
class SoftirqWaits(Reading):
    """Attached at the first reading; gives rows from the second on."""

    def __init__(self, host: Host) -> None:
        host.require_live(PATH)
        super().__init__(host)
        self._cpus = possible(text(host.files, POSSIBLE))
        self._online: tuple[int, ...] = ()
        self._duty = Duty()
        self._sample: _Sample | None = None
        self._price: Price | None = None
        self._spent_ns = 0.0
        self._read_s = 0.0
        self._probe = Probe(len(self._cpus))

    def collect(self) -> Iterable[Row]:
        online = possible(text(self._files, ONLINE), ONLINE)
        came = set(online) - set(self._online)
        watched = self._probe.is_attached and not came
        rows: list[SoftirqWait] = []
        if watched:
            turn = self._probe.next_turn()
            content = self._probe.read()
            rows = list(self._rows(content, turn, time.monotonic_ns()))
            self._settle_sample(content)
        self._online = online
        now = time.monotonic()
        cost = self._duty.last
        if watched and cost is not None:
            self._spent_ns += (now - self._read_s) * cost.whole_ns / cost.seconds
        self._read_s = now
        pending_s = max((row.pending_us or 0 for row in rows), default=0) / 1e6
        alarm = self._host.memo.get(ALARM, 0.0) > now
        self._follow(self._duty.orders(now, alarm, pending_s), fresh=bool(came))
        return [*rows, self._probe_cost(watched)]

    def close(self) -> None:
        self._stop_counting()
        self._probe.close()

    def _rows(self, content: bytes, turn: int, now_ns: int) -> Iterator[SoftirqWait]:
        online = frozenset(self._online)
        for place, cpu in enumerate(self._cpus):
            if cpu not in online:
                continue
            for vector, name in enumerate(VECTORS):
                tally = read_tally(content, place, vector)
                if tally is not None:
                    yield _row(cpu, name, tally, (turn, now_ns))

    def _follow(self, orders: Orders, fresh: bool) -> None:
        """Apply the orders; `fresh`: cores came online, so stored raises may be stale."""
        if fresh or not orders.watch:
            self._stop_counting()
        if not orders.watch:
            self._probe.detach()
            return
        if fresh or not self._probe.is_attached:
            self._probe.attach()
        if orders.sample and self._sample is None:
            self._sample = _Sample(
                began_s=time.monotonic(),
                stats=syscalls.enable_stats() if orders.measure else None,
                runs=self._probe.runs(),
                network=self._network(self._probe.read()),
                others=self._softirqs(),
            )

    def _settle_sample(self, content: bytes) -> None:
        """Settle the cost of a sampled second, if this was one."""
        sample, ended_s = self._sample, time.monotonic()
        if sample is None or ended_s - sample.began_s < SHORTEST_SAMPLE_S:
            return
        runs = self._probe.runs()
        self._stop_counting()
        network = moved(sample.network, self._network(content))
        by_core = events(network, sample.others, self._softirqs())
        if runs is not None and sample.runs is not None:
            times = delta(sample.runs.times, runs.times)
            run_ns = delta(sample.runs.run_ns, runs.run_ns)
            if times is not None and run_ns is not None:  # no times: the kernel did not measure
                self._price = price(by_core, times, run_ns) or self._price
        self._duty.charge(settle(by_core, ended_s - sample.began_s, self._price), ended_s)

    def _network(self, content: bytes) -> dict[int, int]:
        found = {}
        for place, cpu in enumerate(self._cpus):
            tallies = (read_tally(content, place, vector) for vector in range(len(VECTORS)))
            found[cpu] = sum(tally.raises + tally.waits for tally in tallies if tally is not None)
        return found

    def _softirqs(self) -> tuple[SoftirqCount, ...]:
        try:
            return tuple(softirqs.parse(text(self._files, softirqs.PATH)))
        except SourceError:  # then only the network's own events divide the cost
            return ()

    def _stop_counting(self) -> None:
        if self._sample is not None and self._sample.stats is not None:
            os.close(self._sample.stats)
        self._sample = None

    def _probe_cost(self, watched: bool) -> ProbeCost:
        duty, cost = self._duty, self._duty.last
        if cost is None:
            return ProbeCost(duty.mode, watched, duty.why, "", *[None] * 6)
        return ProbeCost(
            mode=duty.mode,
            watched=watched,
            why=duty.why,
            method=cost.method,
            run_ns=cost.run_ns,
            runs=cost.runs,
            sampled_s=cost.seconds,
            worst_core=cost.worst_core,
            worst_core_percent=duty.average_percent,
            spent_ms=self._spent_ns / 1e6,
        )


def _row(cpu: int, vector: str, tally: Tally, moment: tuple[int, int]) -> SoftirqWait:
    turn, now_ns = moment
    longest = tally.longest_ns(turn)
    used = len(tally.buckets)
    while used and not tally.buckets[used - 1]:
        used -= 1
    return SoftirqWait(
        cpu=cpu,
        vector=vector,
        raises=tally.raises,
        waits=tally.waits,
        total_us=tally.total_ns // 1000,
        longest_us=None if longest is None else longest // 1000,
        pending_us=max(0, now_ns - tally.raised_ns) // 1000 if tally.raised_ns else None,
        buckets=tally.buckets[:used],
    )
