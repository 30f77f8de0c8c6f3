"""What a fix must improve, measured in the same way before and after.

Each measure is a number or absent: what could not be measured is not zero. Rates are per second, so
ten seconds before can be compared with ten minutes after.
"""

from __future__ import annotations

from collections.abc import Collection

from sexton.detect.detectors.cpu.quota_throttling import stopped
from sexton.detect.growth import ENOUGH, growth, latest_count
from sexton.detect.resets import in_window as resets_in
from sexton.model.rows.cgroup import CgroupThrottle
from sexton.model.window import Window
from sexton.series import paging
from sexton.series.cores import core_series
from sexton.series.rates import Amount
from sexton.series.restarts import restarts

#: Names of the measures in a plan's `baseline`.
DYING = "dying"
RATE = "zombies_per_minute"
CORE = "core_{}_kernel_percent"
THROTTLED = "throttled_ms_per_second"
RECLAIM = "reclaim_pages_per_second"
RESETS = "resets"
RESTARTS = "restarts {}"
SECONDS = "seconds"


def measure(
    window: Window, cores: Collection[int] = (), units: Collection[str] = ()
) -> dict[str, float]:
    """All measures that the window allows."""
    found: dict[str, float] = {SECONDS: window.seconds}
    if (counted := latest_count(window)) is not None and counted.dying is not None:
        found[DYING] = float(counted.dying)
    if (moved := growth(window)) is not None:
        found[RATE] = moved.rate * 60
    busy = core_shares(window)
    for core in cores:
        if core in busy:
            found[CORE.format(core)] = busy[core]
    if (throttled := _throttled(window)) is not None:
        found[THROTTLED] = throttled
    if (scanned := _reclaim(window)) is not None:
        found[RECLAIM] = scanned
    if (resets := resets_in(window)) is not None:
        found[RESETS] = float(resets)
    counted_restarts = restarts(window)
    for unit in units:
        if unit in counted_restarts:
            found[RESTARTS.format(unit)] = float(counted_restarts[unit].recent)
    return found


def are_fewer(before: float, gone: float) -> bool:
    """Whether zombies were freed: on v1 only the whole node is counted, and a few come and go.

    >>> are_fewer(1532, 1), are_fewer(1532, 40), are_fewer(3, 2)
    (False, True, True)
    """
    return before > 0 and gone >= min(ENOUGH.value, before / 2)


def why_uncounted(window: Window) -> str:
    """Why zombie growth could not be measured."""
    census = latest_count(window)
    if census is None:
        return "no cgroup hierarchy could be read"
    if census.dying is None:
        return census.reason or "this kernel reports only the total number of cgroups"
    return "only one sample; watch longer"


def core_shares(window: Window) -> dict[int, float]:
    """Kernel time per core, interrupts included, in percent, as a held core is judged."""
    series = core_series(window)
    if series is None:
        return {}
    found = series.over(window.start_mono, window.end_mono)
    return {core: shares.kernel for core, shares in found.items()}


def _throttled(window: Window) -> float | None:
    """Milliseconds per second that cgroups were throttled; 0 if none has a quota. Leaves out
    steps and cgroups without a reading; `None` if there are no others."""
    if not window.row_count(CgroupThrottle):
        return 0.0 if window.read(CgroupThrottle) else None
    known = stopped(window)
    return Amount(sum(known.us.values()) / 1e3, known.seconds).rate if known.us else None


def _reclaim(window: Window) -> float | None:
    """Pages per second scanned by direct reclaim."""
    over = paging.whole(window)
    return None if over is None else over.tasks_rate
