"""What a recorder says of itself, beside what it saw of the node."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class Alarm(Row):
    """Something that made the recorder keep the minutes around it and look closer.

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
    """A person's remark: `sexton recording mark DIR "job 17 died"`."""

    text: str


@row
class RecorderNote(Row):
    """Something the reader of a recording must know: what was shed, lost, refused or jumped.

    `kind` is "shed", "restored", "lost", "disk", "clock", "taken over", "source", "detail",
    "config" or "ship".
    """

    kind: str
    detail: str


@row
class RecorderCost(Row):
    """What the recorder itself has used since it started.

    `kernel_ms` is time spent on our behalf in interrupts and probes, which no process is charged
    with; `None` where it cannot be measured.
    """

    cpu_ms: int
    children_cpu_ms: int
    kernel_ms: int | None
    rss_bytes: int
    children_rss_bytes: int
    written_bytes: int
    held_bytes: int
