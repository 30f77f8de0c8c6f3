"""Spikes: stretches in which some core did nothing but kernel work; what "next spike" goes to.

By the same limit as the detector `saturated_core`, second by second. Where no core ever reached it
half of it counts: a key that never finds anything is of no use.
"""

from __future__ import annotations

import numpy as np

from sexton.detect.detectors.saturated_core import KERNEL_SHARE
from sexton.explorer.lanes.cores import Builder
from sexton.model.lane import COLUMNS, Marked

#: Nearer to each other than this they are one.
_NEAR_S = 3
#: As many are kept as anyone steps through.
_MOST = 10_000


def spikes(cores: Builder) -> list[Marked]:
    """All of them, in the order of time."""
    seconds, held, which = [], [], []
    for tile in cores.pyramid.tiles:
        found = cores.kernel_time(tile)
        if found is not None:
            seconds.append(np.arange(COLUMNS) + tile * COLUMNS)
            held.append(found[0])
            which.append(found[1])
    if not seconds:
        return []
    second, half, core = (np.concatenate(each) for each in (seconds, held, which))
    limit = 2 * KERNEL_SHARE.value
    if not (half >= limit).any():
        limit /= 2
    hot = np.flatnonzero(half >= limit)
    if not len(hot):
        return []
    breaks = np.flatnonzero(np.diff(second[hot]) > _NEAR_S) + 1
    made = []
    for run in np.split(hot, breaks)[:_MOST]:
        most = run[int(half[run].argmax())]
        share = min(float(half[most]) / 2, 100.0)
        start, end = float(second[run[0]]), float(second[run[-1]] + 1)
        about = f"core {int(core[most])}"
        text = f"{about} in the kernel {share:.0f} % of a second, for {end - start:.0f} s"
        made.append(Marked(start, end, "spike", text, "warning", about, "cores"))
    return made
