"""Kernel stacks, counted."""

from __future__ import annotations

from sexton.model.row import Row, row


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
