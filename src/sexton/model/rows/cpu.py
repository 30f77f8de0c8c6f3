"""What the cores do."""

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
    """Which cores an interrupt may fire on, and on which it really does where that is known."""

    entity = ("irq",)

    irq: int
    allowed: tuple[int, ...]
    effective: tuple[int, ...] | None
