"""The hypervisor takes time away from this virtual machine's cores.

**What is seen.** Per core, from two or more readings of `/proc/stat`: the share of time in which it
had work and the hypervisor ran something else (`steal`), on average over ten seconds and more.

**Why it hurts.** Every task on that core stops in that time, and nothing inside the machine
shows why: the load is high, no task is busy, timers and heartbeats are late. Soft lockups and RCU
stalls are reported for cores that were simply not run.

**What would make it wrong.** A burstable instance that has used up its CPU credits is throttled
as agreed: the cause is its size. Not every hypervisor reports steal time, so 0 % proves little in a
machine whose clocks jump. Some per cent are ordinary on shared hosts.

**Check by hand.** ``mpstat -P ALL 1 10`` (`%steal`), ``vmstat 1`` (`st`).

**What to do.** It cannot be fixed from inside. Move the machine to another host (stop and start
it), take an instance type with dedicated cores, or look at its CPU credits. On your own
hypervisor: run fewer virtual cores per real one, or pin them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sexton.detect.findings import absent, and_more, not_seen, too_few_readings
from sexton.detect.registry import Averages, Threshold, detector, look
from sexton.model.finding import Evidence, Finding, Severity, Verdict
from sexton.model.rows.cpu import CoreTimes
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.cores import bridged_series
from sexton.series.load import Means, Stretch, high
from sexton.series.rates import hidden_s

NAME = "cpu_steal"

TAKEN = Threshold(
    "taken", 20, "% of a core", "a fifth of its time: everything there takes a quarter longer"
)
GRAVE = Threshold("grave", 50, "% of a core", "it runs half of the time or less")
LASTING = Threshold("lasting", 10, "s", "a live migration or a snapshot is over by then")
_SHOWN = 8


class _Stolen(NamedTuple):
    core: int
    worst: Stretch


def _hidden_s(window: Window) -> float:
    """Seconds without a reading in which enough of a core was stolen."""
    found = bridged_series(window)
    if found is None or not len(found.cores):
        return 0.0
    most = 100 * np.nan_to_num(found.stolen).max(axis=0) / TAKEN.value
    return hidden_s(window, (found.start, found.end), most, LASTING.value)


def _ruled_out(window: Window) -> str:
    found = bridged_series(window)
    known = found is not None and not np.isnan(found.stolen).all() and not _hidden_s(window)
    return "steal" if known else ""


@detector(
    needs=(CoreTimes,),
    thresholds=(TAKEN, GRAVE, LASTING),
    title="stolen CPU time",
    story="The hypervisor took the cores away",
    lanes=("cores", "run_queue"),
    about=("core",),
    answers={"core": 6},
    ruled_out=_ruled_out,
    advice=look("mpstat -P ALL 1 10", "see whether it goes on: %steal by core"),
    averages=Averages((CoreTimes,), LASTING, "a core taken away"),
)
def detect(window: Window) -> Finding:
    """The core that was taken away most, and all others above the limit."""
    found = bridged_series(window)
    if found is None or np.isnan(found.stolen).all():
        what = "two readings of /proc/stat"
        return too_few_readings(NAME, "one reading does not show what was stolen when", what)
    start, end, cores, share = found.start, found.end, found.cores, found.percent(found.stolen)
    # Most cores lose nothing: skip those whose highest step is too low for any mean.
    peaks = np.nan_to_num(share).max(axis=1).tolist()
    taken = [
        _Stolen(core, max(stretches, key=lambda stretch: stretch.mean * stretch.seconds))
        for core, peak, mine in zip(cores, peaks, share, strict=True)
        if peak >= TAKEN.value and (stretches := high(start, end, mine, TAKEN.value, LASTING.value))
    ]
    if not taken:
        # A core that was read only once has no step.
        known = np.flatnonzero(~np.isnan(share).all(axis=1))
        most = (0.0, max(cores[row] for row in known.tolist()))
        means = Means(start, end, LASTING.value)
        for peak, core, row in sorted(zip(peaks, cores, range(len(cores)), strict=True))[::-1]:
            if peak >= max(most[0], 1e-9):
                most = max(most, (means.highest(share[row]) or 0.0, core))
        percent, core = most
        evidence = _evidence(core, percent, f"in {duration(window.seconds)}")
        lacking = not_seen("whether a core was taken away", _hidden_s(window))
        summary = f"at most {percent:.0f} % of a core stolen (core {core})"
        return absent(NAME, summary, [evidence], lacking)
    taken.sort(key=lambda item: (-item.worst.mean, item.core))
    worst = taken[0]
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.CRITICAL if worst.worst.mean >= GRAVE.value else Severity.WARNING,
        f"the hypervisor took {worst.worst.mean:.0f} % of core {worst.core}"
        f"{and_more(taken, 'core')} for {duration(worst.worst.seconds)}",
        entities={"core": tuple(str(item.core) for item in taken)},
        start=window.wall(min(item.worst.start for item in taken)),
        end=window.wall(max(item.worst.end for item in taken)),
        evidence=tuple(
            _evidence(item.core, item.worst.mean, f"over {duration(item.worst.seconds)}")
            for item in taken[:_SHOWN]
        ),
    )


def _evidence(core: int, share: float, when: str) -> Evidence:
    return Evidence(
        f"core {core}, stolen",
        f"{share:.0f} %",
        f"< {TAKEN.value:.0f} % for {LASTING.value:.0f} s",
        f"% of a core {when}",
        "/proc/stat",
        share,
        "the instance has used up its CPU credits, as agreed",
    )
