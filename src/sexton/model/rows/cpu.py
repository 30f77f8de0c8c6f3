"""Cores: their time, softirqs, run queues and interrupts."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class CoreTimes(Row):
    """Where one core's time went since boot (`/proc/stat`, cumulative)."""

    entity = ("cpu",)

    cpu: int
    user_ms: int
    nice_ms: int
    system_ms: int
    idle_ms: int
    iowait_ms: int
    irq_ms: int
    softirq_ms: int
    steal_ms: int


@row
class ReadyTasks(Row):
    """Tasks of the whole node at one moment (`/proc/stat`): `running` are on a core or ready for
    one, `blocked` wait for I/O."""

    running: int
    blocked: int | None


@row
class SoftirqCount(Row):
    """How often one core ran each softirq since boot (`/proc/softirqs`)."""

    entity = ("cpu",)

    cpu: int
    timer: int | None
    net_tx: int | None
    net_rx: int | None
    block: int | None
    tasklet: int | None
    sched: int | None
    hrtimer: int | None
    rcu: int | None


@row
class SoftnetCpu(Row):
    """One core's packet backlog counters (`/proc/net/softnet_stat`)."""

    entity = ("cpu",)

    cpu: int
    processed: int
    dropped: int
    time_squeeze: int
    received_rps: int | None
    flow_limit: int | None
    backlog: int | None


@row
class RunQueue(Row):
    """One core's run queue since boot (`/proc/schedstat`): time run, and time tasks waited."""

    entity = ("cpu",)

    cpu: int
    run_ns: int
    wait_ns: int
    timeslices: int


@row
class Interrupt(Row):
    """One line of `/proc/interrupts`; `counts` is per online core, in `cpus`' order."""

    entity = ("irq",)

    irq: str
    name: str
    cpus: tuple[int, ...]
    counts: tuple[int, ...]


@row
class IrqAffinity(Row):
    """Which cores an interrupt may fire on, and on which it does, if known."""

    entity = ("irq",)

    irq: int
    allowed: tuple[int, ...]
    effective: tuple[int, ...] | None


@row
class SoftirqWait(Row):
    """Waits of one softirq vector ("NET_RX", "NET_TX") on one core, from raise to entry.

    `waits`, `raises`, `total_us` and `buckets` count from when the probe was loaded; several raises
    before one entry are one wait, measured from the oldest. `buckets[0]` holds waits below 1 us,
    `buckets[n]` those from 2**(n-1) us to below 2**n us and `buckets[25]` all from 16.8 s up;
    empty buckets at the end are left out. `longest_us` is the longest wait that *ended* since the
    reading before, `None` if none did; `pending_us` is how long the oldest raise that was not yet
    entered has been waiting at the moment of reading, `None` if nothing is waiting.
    """

    entity = ("cpu", "vector")

    cpu: int
    vector: str
    raises: int
    waits: int
    total_us: int
    longest_us: int | None
    pending_us: int | None
    buckets: tuple[int, ...]


@row
class ProbeCost(Row):
    """The state of the softirq probe, and its cost inside the kernel.

    `mode` is "on", "1 s in 10" or "off"; `watched`: it measured in the time up to this reading;
    `why` is the reason for a mode other than "on". The rest is about the last sampled second,
    `None` before the first: `run_ns` is the time in our programs on all cores, `runs` their number
    of calls, `sampled_s` the length of that second; `worst_core` and `worst_core_percent` are the
    core with the highest cost and its share of time, averaged over the seconds in which the probe
    is paused. `method` is "run_time_ns" if the kernel measured what a call costs, else "estimate".
    `spent_ms` is the total since the probe was loaded, extrapolated from the sampled seconds. Both
    include the cost of calling the programs, which `run_ns` leaves out.
    """

    mode: str
    watched: bool
    why: str
    method: str
    run_ns: int | None
    runs: int | None
    sampled_s: float | None
    worst_core: int | None
    worst_core_percent: float | None
    spent_ms: float | None
