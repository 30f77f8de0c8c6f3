"""Recordings that never happened: any number of cores and hours, and causes planted on purpose.

``python -m lab.synthetic DIR --plant crash_loop,zombie_walk,nic_reset`` writes sealed segments as
the recorder would, and tells what it planted, with the exact times. What is made up here stands
for no kernel: counters are random, only their ranges, units and joins are those of a real node.
"""

from __future__ import annotations

from lab.synthetic.plan import CAUSES, TWINS, Plan, Planted
from lab.synthetic.writing import Generated, write

__all__ = ["CAUSES", "TWINS", "Generated", "Plan", "Planted", "write"]
