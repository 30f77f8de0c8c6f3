"""Which cgroup a process lived in at a moment, where somebody wrote it down."""

from __future__ import annotations

from collections.abc import Iterable

from sexton.model.task import ProcessCgroup
from sexton.model.window import Window


def cgroups_of(window: Window, pids: Iterable[int], mono_s: float) -> tuple[str, ...]:
    """Their cgroups by the last reading before that moment, else by the first after it.

    No other is asked: a pid may be another process by then.
    """
    batches = window.between(ProcessCgroup, mono_s, mono_s)
    before = [batch for batch in batches if batch.mono_s <= mono_s][-1:]
    after = [batch for batch in batches if batch.mono_s > mono_s][:1]
    known: dict[int, str] = {}
    for batch in (*after, *before):
        known |= {row.pid: row.path for row in batch.rows}
    return tuple(dict.fromkeys(known[pid] for pid in pids if pid in known and known[pid] != "/"))
