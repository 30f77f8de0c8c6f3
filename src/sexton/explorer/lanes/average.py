"""Machine average: all cores together, as most monitoring shows them.

User, system and softirq time of all cores, divided by the time they were given. One core that is
held for seconds hardly moves it, so the lane below it shows every core.
"""

from __future__ import annotations

from sexton.explorer.tiles.registry import shown_by
from sexton.model.rows.cpu import CoreTimes
from sexton.series.catalogue import ALL_CORES

shown_by(__name__, "cores", "lines", ALL_CORES, (10, (CoreTimes,)))
