"""Kernel stacks, and events from the kernel's trace ring."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class TraceEvent(Row):
    """One kernel event on core `cpu`, on CLOCK_MONOTONIC, in microseconds as the kernel prints it.

    `pid` and `comm` are the thread the core was running; `event` is the tracepoint
    ("sched_switch", "softirq_raise", "napi_poll", …), `detail` what it printed.
    """

    mono_ns: int
    cpu: int
    pid: int
    comm: str
    event: str
    detail: str


@row
class RingState(Row):
    """The state of the event ring: `mode` is "on", "paused" or "off".

    `events_per_s` is the busiest core's rate, and `estimated_percent` its cost in the kernel: an
    estimate from a measured cost per event, since it is charged to no process.
    """

    mode: str
    events_per_s: float | None
    estimated_percent: float | None
    reason: str


@row
class StackCount(Row):
    """Samples of one thread in one kernel stack on one core within one second.

    `frames` are function names, the innermost first; `second_mono` is CLOCK_MONOTONIC, whole
    seconds. Idle samples are not included; interrupt work on an idle core is.
    """

    second_mono: int
    cpu: int
    pid: int
    tid: int
    comm: str
    frames: tuple[str, ...]
    samples: int
