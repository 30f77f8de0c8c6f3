"""What speaks against the explanation: the look-alikes' own counters, over the same window.

Each line names another cause of the same symptom and what its counter did. A look-alike that
moved is said as loudly as one that did not; one that was found speaks for itself, and not against
anything.
"""

from __future__ import annotations

from collections.abc import Collection

from sexton.model.cgroup import CgroupThrottle
from sexton.model.cpu import SoftnetCpu
from sexton.model.memory import VmCounter
from sexton.model.net import TcpCounters
from sexton.model.row import Row
from sexton.model.text import printable
from sexton.model.window import Key, Window
from sexton.series.pressure import between, levels
from sexton.series.rates import totals


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
    pages = _counter(window, VmCounter, "value", "pgscan_direct")
    if pages is None:
        return ""
    return "direct reclaim none" if not pages else f"direct reclaim {pages:,.0f} pages scanned"


def _quota(window: Window) -> str:
    moved = _moved(window, CgroupThrottle, "throttled")
    if moved is None:
        return ""
    worst = max(moved, key=lambda thing: moved[thing], default=None)
    if worst is None or not moved[worst]:
        return "CPU quota none"
    return f"CPU quota stopped {printable(str(worst[0]))} {moved[worst]:,.0f} times"


def _flood(window: Window) -> str:
    dropped, squeezed = (_moved(window, SoftnetCpu, name) for name in ("dropped", "time_squeeze"))
    if dropped is None or squeezed is None:
        return ""
    lost, cut = sum(dropped.values()), sum(squeezed.values())
    if not lost and not cut:
        return "packet flood no"
    return f"packet backlog dropped {lost:,.0f}, squeezed {cut:,.0f} times"


def _pressure(window: Window) -> str:
    found = levels(window)
    over = between(found[0], found[-1]) if len(found) > 1 else None
    return "" if over is None else f"memory pressure {over.some:.1f} %"


def _faults(window: Window) -> str:
    faults = _counter(window, VmCounter, "value", "pgmajfault")
    edges = window.bounds_of(VmCounter)
    if faults is None or edges is None:
        return ""
    return f"major page faults {faults / (edges[1] - edges[0]):.0f} a second"


def _loss(window: Window) -> str:
    sent = _counter(window, TcpCounters, "out_segments")
    again = _counter(window, TcpCounters, "retransmitted_segments")
    if not sent or again is None:
        return ""
    return f"TCP retransmits {100 * again / sent:.1f} %"


def _counter(window: Window, kind: type[Row], field: str, *key: str) -> float | None:
    return (_moved(window, kind, field, key) or {}).get(key)


def _moved(
    window: Window, kind: type[Row], field: str, only: Key | None = None
) -> dict[Key, float] | None:
    """What each thing's counter moved by in the window; `None` where it was not read twice."""
    edges = window.bounds_of(kind)
    if edges is None or edges[0] == edges[1]:
        return None
    read = window.columns(kind, (field,), None if only is None else only.__eq__)
    return {thing: each[field] for thing, each in totals(read).items() if field in each}
