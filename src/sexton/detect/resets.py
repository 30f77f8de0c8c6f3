"""What a NIC reset is, and how many happened in a window.

The kernel log and the driver's counters report the same resets. Detector, alarms, `why`, explorer,
`fix verify` and `top` all count by the rules here:

- **A line** reports a reset if a driver says so (`nic_reset`), if the transmit watchdog fired
  (`nic_watchdog`), or if it is a driver's reason for a reset that follows (`nic_starved` with the
  phase "cause"). Other lines about a starved queue belong to a reset but do not report one.
- **Lines** of one NIC within `ONE_RESET` of each other are one reset, unless one says that the
  reset is done and the next that another begins. Two NICs that are reset together are two resets.
- **Counters**: the total if the driver has one, else the sum of the causes. The transmit watchdog
  has two counters, which count the same.
- **Both**: per NIC the higher of the two, since old log lines are lost and some drivers count
  nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sexton.detect import kernel_log, nics
from sexton.detect.kernel_log import Burst, Line
from sexton.detect.registry import Threshold
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import Nic
from sexton.model.window import Window
from sexton.series.rates import Floats
from sexton.series.sums import known_sum

ONE_RESET = Threshold(
    "one reset", 10, "s between lines", "a driver logs all lines of one reset within seconds"
)
FAMILIES = ("nic_reset", "nic_watchdog", "nic_starved")
#: Counters of single causes.
CAUSES = {
    "suspected_poll_starvation": "its poll was starved",
    "missing_tx_cmpl": "transmissions were not completed in time",
    "os_netdev_wd": "the transmit watchdog fired",
    "tx_timeout": "the transmit watchdog fired",
    "wd_expired": "the device stopped sending keep-alives",
    "missing_intr": "an interrupt was lost",
}
_TOTAL = "total_resets"
_WATCHDOG = ("os_netdev_wd", "tx_timeout")
#: Names in drivers other than ENA: gve, ixgbe and its relatives, mlx4. Time-outs counted by queue
#: are left out: virtio_net counts them and resets nothing.
_CALLED = {
    "reset_cnt": _TOTAL,
    "hw_reset": _TOTAL,
    "hw_resets": _TOTAL,
    "tx_timeouts": "tx_timeout",
    "tx_timeout_count": "tx_timeout",
}
COUNTERS = (_TOTAL, *CAUSES, *_CALLED)


def meaning(counter: str) -> str | None:
    """ENA's name for what a driver's counter counts; `None` if it does not count resets.

    >>> meaning("total_resets"), meaning("tx_timeout_count"), meaning("tx_queue_0_tx_timeouts")
    ('total_resets', 'tx_timeout', None)
    """
    return _CALLED.get(counter, counter if counter == _TOTAL or counter in CAUSES else None)


def reports_reset(event: KernelEvent) -> bool:
    """Does this line report a reset?"""
    if event.family == "nic_starved":
        return event.fields.get("phase") == "cause"
    return event.family in FAMILIES


def grouped(lines: Iterable[Line], named: Callable[[Line], str | None]) -> list[Burst]:
    """The resets in these lines, the oldest first."""
    found = kernel_log.bursts(lines, named, ONE_RESET.value)
    return [burst for burst in found if any(reports_reset(line.event) for line in burst.lines)]


def logged(window: Window) -> list[Burst]:
    """Every reset in the kernel log, including those before the window."""
    lines = kernel_log.lines(window, FAMILIES)
    return grouped(lines, nics.namer(window.latest(Nic) or (), lines))


def counters(window: Window) -> list[nics.Counter]:
    """The reset counters of physical interfaces."""
    real = nics.physical(window)
    found = nics.counters(window, COUNTERS)
    return [counter for counter in found if real is None or counter.nic in real]


def by_counters(names: Sequence[str], values: Floats) -> Floats:
    """Resets of one NIC by its counters: a row per counter, a column per step. NaN if unknown.

    >>> by_counters(["tx_timeout", "os_netdev_wd", "wd_expired"], np.array([[1.0], [1.0], [2.0]]))
    array([3.])
    """
    rows: dict[str, list[Floats]] = {}
    for name, value in zip(names, values, strict=True):
        rows.setdefault(meaning(name) or "", []).append(value)
    if _TOTAL in rows:
        total: Floats = np.fmax.reduce(rows[_TOTAL])
        return total
    causes = [value for name in CAUSES if name not in _WATCHDOG for value in rows.get(name, ())]
    watchdog = [value for name in _WATCHDOG for value in rows.get(name, ())]
    if watchdog:
        causes.append(np.fmax.reduce(watchdog))
    return known_sum(np.array(causes).reshape(len(causes), values.shape[1]))


class Counted(NamedTuple):
    """Resets by NIC and by its counters: since the driver was loaded, and in the window. NICs
    without such counters are missing."""

    since_boot: Mapping[str, int]
    in_window: Mapping[str, int]


def counted(found: Iterable[nics.Counter]) -> Counted:
    """The resets that these counters show."""
    by_nic: dict[str, list[nics.Counter]] = {}
    for counter in found:
        by_nic.setdefault(counter.nic, []).append(counter)
    since_boot, in_window = {}, {}
    for nic, mine in by_nic.items():
        names = [counter.name for counter in mine]
        numbers = [(counter.value, counter.moved) for counter in mine]
        value, moved = by_counters(names, np.array(numbers, np.float64)).tolist()
        since_boot[nic] = int(value)
        if not np.isnan(moved):
            in_window[nic] = int(moved)
    return Counted(since_boot, in_window)


def merged(bursts: Iterable[Burst], by_nic: Mapping[str, int]) -> int:
    """The sum over all NICs of the log's or the counters' number, whichever is higher. Lines that
    name no NIC may be about resets that only counters attribute."""
    names = [burst.name for burst in bursts]
    lines = Counter(name for name in names if name is not None)
    most = sum(max(lines[nic], by_nic.get(nic, 0)) for nic in {*lines, *by_nic})
    return max(most, len(names))


def in_window(window: Window) -> int | None:
    """Resets in the window; `None` if neither the log nor counters were read."""
    if nics.physical(window) == ():
        return 0
    moved = counted(counters(window)).in_window
    if not moved and not kernel_log.was_read(window):
        return None
    recent = [
        burst
        for burst in logged(window)
        if burst.age_s is not None and burst.age_s <= window.seconds
    ]
    return merged(recent, moved)


def by_nic(window: Window) -> dict[str, int]:
    """Resets of each NIC since boot, as far as the log and the counters go back. A NIC that neither
    mentions is missing."""
    since_boot = counted(counters(window)).since_boot
    lines = Counter(burst.name for burst in logged(window) if burst.name is not None)
    names = dict.fromkeys([*since_boot, *lines])
    return {name: max(lines[name], since_boot.get(name, 0)) for name in names}
