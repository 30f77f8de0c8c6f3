"""Diagnose an incident as if nothing had been read for some seconds.

An overloaded recorder waits for a core, too, or a disk, or is stopped. What it did not read may be
known by the counters before and after, or unknown, but it was not calm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lab.hidden_source import ChangedWindow
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupEvent, CgroupEventGap
from sexton.model.rows.event import KernelEvent, KernelLog, ServiceEvent
from sexton.model.rows.recorder import Alarm, Mark, RecorderNote
from sexton.model.rows.trace import StackCount
from sexton.model.rows.unit import RestartMark
from sexton.model.window import Batch, Window
from sexton.store.schema import tables

#: Logs and rings, which keep what happened until somebody reads them.
_KEPT: tuple[type[Row], ...] = (
    KernelEvent,
    KernelLog,
    ServiceEvent,
    RestartMark,
    CgroupEvent,
    CgroupEventGap,
    Alarm,
    Mark,
    RecorderNote,
    StackCount,
)


def without_readings(window: Window, start: float, end: float) -> Window:
    """The window without its readings from `start` to `end` (monotonic seconds)."""
    changed = {}
    for kind in tables().values():
        read = window.batches(kind)
        if read is not None and kind not in _KEPT:
            changed[kind] = _cut(read, start, end)
    return ChangedWindow(window, changed)


def _cut(read: Sequence[Batch[Any]], start: float, end: float) -> list[Batch[Any]]:
    kept = [batch for batch in read if not start < batch.mono_s < end]
    if len(kept) == len(read):
        return kept
    after = next((at for at, batch in enumerate(kept) if batch.mono_s >= end), None)
    if after:
        kept[after] = replace(kept[after], follows=False)
    return kept
