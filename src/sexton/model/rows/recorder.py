"""What a recorder writes about itself."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class Alarm(Row):
    """Something that made the recorder pin the minutes around it and read more often.

    `kind` is "held_core", "nic_reset", "soft_lockup", "softirq_wait", "mark" or the ID of the
    detector that counts zombies; `about` names the core, NIC or count it was raised for. `start_s`
    and `end_s` are the pinned span on the monotonic clock.
    """

    kind: str
    about: str
    detail: str
    start_s: float
    end_s: float


@row
class Mark(Row):
    """A user's remark: `sexton recording mark DIR "job 17 died"`."""

    text: str


@row
class RecorderNote(Row):
    """A note for readers of a recording: what was paused, lost or refused, or a clock jump.

    `kind` is "shed", "restored", "over" (over the budget, with nothing left to pause), "lost",
    "disk", "clock", "taken over", "source", "stacks", "detail", "config" or "ship".
    """

    kind: str
    detail: str


@row
class RecorderCost(Row):
    """What the recorder itself has used since it started.

    `kernel_ms` is time spent on our behalf in interrupts and probes, which is charged to no
    process; `None` if it cannot be measured.
    """

    cpu_ms: int
    children_cpu_ms: int
    kernel_ms: int | None
    rss_bytes: int
    children_rss_bytes: int
    written_bytes: int
    held_bytes: int
