"""What speaks against the explanation: the look-alikes' own counters, over the same window.

Each line names another cause of the same symptom and what its counter did. A look-alike that
moved is said as loudly as one that did not; one that was found speaks for itself, and not against
anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import TypeVar

from sexton.model.cgroup import CgroupThrottle
from sexton.model.cpu import SoftnetCpu
from sexton.model.memory import Pressure, VmCounter
from sexton.model.net import TcpCounters
from sexton.model.row import Row
from sexton.model.text import printable
from sexton.model.window import Window
from sexton.series.steps import Step, span

R = TypeVar("R", bound=Row)


def look_alikes(window: Window, told: Collection[str] = ()) -> tuple[str, ...]:
    """One phrase per look-alike that could be judged; `told` are findings that are there."""
    phrases = {
        "direct_reclaim": _direct_reclaim,
        "quota_throttling": _quota,
        "softirq_flood": _flood,
        "memory_pressure": _pressure,
        "page_fault_storm": _faults,
        "tcp_loss": _loss,
    }
    found = (phrase(window) for name, phrase in phrases.items() if name not in told)
    return tuple(each for each in found if each)


def _direct_reclaim(window: Window) -> str:
    step = _counter(window, "pgscan_direct")
    pages = step.delta("value") if step else None
    if pages is None:
        return ""
    return "direct reclaim none" if pages == 0 else f"direct reclaim {pages:,} pages scanned"


def _quota(window: Window) -> str:
    moved = _moved(window, CgroupThrottle, lambda row: row.path)
    if moved is None:
        return ""
    throttled = {path: step.delta("throttled") or 0 for path, step in moved.items()}
    worst = max(throttled, key=lambda path: throttled[path], default=None)
    if worst is None or not throttled[worst]:
        return "CPU quota none"
    return f"CPU quota stopped {printable(str(worst))} {throttled[worst]:,} times"


def _flood(window: Window) -> str:
    moved = _moved(window, SoftnetCpu, lambda row: row.cpu)
    if moved is None:
        return ""
    dropped = sum(step.delta("dropped") or 0 for step in moved.values())
    squeezed = sum(step.delta("time_squeeze") or 0 for step in moved.values())
    if not dropped and not squeezed:
        return "packet flood no"
    return f"packet backlog dropped {dropped:,}, squeezed {squeezed:,} times"


def _pressure(window: Window) -> str:
    moved = _moved(window, Pressure, lambda row: (row.resource, row.kind))
    step = moved.get(("memory", "some")) if moved else None
    stalled = step.delta("total_us") if step else None
    if step is None or stalled is None:
        return ""
    return f"memory pressure {stalled / 10_000 / step.seconds:.1f} %"


def _faults(window: Window) -> str:
    step = _counter(window, "pgmajfault")
    faults = step.delta("value") if step else None
    if step is None or faults is None:
        return ""
    return f"major page faults {faults / step.seconds:.0f} a second"


def _loss(window: Window) -> str:
    moved = _moved(window, TcpCounters, type)
    step = moved.get(TcpCounters) if moved else None
    sent = step.delta("out_segments") if step else None
    again = step.delta("retransmitted_segments") if step else None
    if not sent or again is None:
        return ""
    return f"TCP retransmits {100 * again / sent:.1f} %"


def _counter(window: Window, name: str) -> Step[VmCounter] | None:
    moved = _moved(window, VmCounter, lambda row: row.name)
    return moved.get(name) if moved else None


def _moved(
    window: Window, kind: type[R], key: Callable[[R], Hashable]
) -> dict[Hashable, Step[R]] | None:
    """Each entity's step over the window; `None` where it was not read twice."""
    batches = window.batches(kind)
    return span(batches, key) if batches is not None and len(batches) > 1 else None
