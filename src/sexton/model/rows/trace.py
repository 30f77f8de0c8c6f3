"""What the kernel's event ring held when it was stopped."""

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
    """What the event ring is doing: `mode` is "on", "paused" or "off".

    `events_per_s` is the busiest core's rate, and `estimated_percent` what that costs it in the
    kernel: an estimate from a measured cost per event, since no process is charged with it.
    """

    mode: str
    events_per_s: float | None
    estimated_percent: float | None
    reason: str
