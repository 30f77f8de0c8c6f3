"""Kernel stacks, counted."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class StackCount(Row):
    """How often one thread was caught in one kernel stack on one core within one second.

    `frames` are function names, the innermost first; `second_mono` is CLOCK_MONOTONIC, whole
    seconds. Idle is left out, interrupt work that broke into idle is not.
    """

    second_mono: int
    cpu: int
    pid: int
    tid: int
    comm: str
    frames: tuple[str, ...]
    samples: int
