"""What speaks against the explanation: the look-alikes' own counters, over the same window.

Each line names another cause of the same symptom and what its counter did. A look-alike that
moved is said as loudly as one that did not; their detectors come with the lab, where each can be
made for real.
"""

from __future__ import annotations

from sexton.model.cgroup import CgroupThrottle
from sexton.model.cpu import SoftnetCpu
from sexton.model.memory import Pressure, VmCounter
from sexton.model.net import TcpCounters
from sexton.model.rates import span
from sexton.model.window import Window


def look_alikes(window: Window) -> tuple[str, ...]:
    """One phrase per look-alike that could be judged."""
    phrases = (
        _direct_reclaim(window),
        _quota(window),
        _flood(window),
        _pressure(window),
        _faults(window),
        _loss(window),
    )
    return tuple(phrase for phrase in phrases if phrase)


def _direct_reclaim(window: Window) -> str:
    batches = window.batches(VmCounter)
    if batches is None or len(batches) < 2:
        return ""
    moved = span(batches, lambda row: row.name)
    scanned = moved.get("pgscan_direct")
    pages = scanned.delta("value") if scanned else None
    if pages is None or scanned is None:
        return ""
    return "direct reclaim none" if pages == 0 else f"direct reclaim {pages:,} pages scanned"


def _quota(window: Window) -> str:
    batches = window.batches(CgroupThrottle)
    if batches is None or len(batches) < 2:
        return ""
    moved = span(batches, lambda row: row.path)
    throttled = {path: step.delta("throttled") or 0 for path, step in moved.items()}
    worst = max(throttled, key=lambda path: throttled[path], default=None)
    if worst is None or not throttled[worst]:
        return "CPU quota none"
    return f"CPU quota stopped {worst} {throttled[worst]:,} times"


def _flood(window: Window) -> str:
    batches = window.batches(SoftnetCpu)
    if batches is None or len(batches) < 2:
        return ""
    moved = span(batches, lambda row: row.cpu).values()
    dropped = sum(step.delta("dropped") or 0 for step in moved)
    squeezed = sum(step.delta("time_squeeze") or 0 for step in moved)
    if not dropped and not squeezed:
        return "packet flood no"
    return f"packet backlog dropped {dropped:,}, squeezed {squeezed:,} times"


def _pressure(window: Window) -> str:
    batches = window.batches(Pressure)
    if batches is None or len(batches) < 2:
        return ""
    step = span(batches, lambda row: (row.resource, row.kind)).get(("memory", "some"))
    stalled = step.delta("total_us") if step else None
    if step is None or stalled is None:
        return ""
    return f"memory pressure {stalled / 10_000 / step.seconds:.1f} %"


def _faults(window: Window) -> str:
    batches = window.batches(VmCounter)
    if batches is None or len(batches) < 2:
        return ""
    step = span(batches, lambda row: row.name).get("pgmajfault")
    faults = step.delta("value") if step else None
    if step is None or faults is None:
        return ""
    return f"major page faults {faults / step.seconds:.0f} a second"


def _loss(window: Window) -> str:
    batches = window.batches(TcpCounters)
    if batches is None or len(batches) < 2:
        return ""
    step = span(batches, type).get(TcpCounters)
    sent = step.delta("out_segments") if step else None
    again = step.delta("retransmitted_segments") if step else None
    if not sent or again is None:
        return ""
    return f"TCP retransmits {100 * again / sent:.1f} %"
