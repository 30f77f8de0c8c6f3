"""Synthetic recordings: any number of cores and hours, with planted causes.

``python -m lab.synthetic DIR --plant crash_loop,zombie_walk,nic_reset`` writes sealed segments as
the recorder would, and prints what it planted with exact times. The data models no real kernel:
counters are random; only their ranges, units and keys are those of a real node.
"""

from __future__ import annotations

from lab.synthetic.generate import Generated, write
from lab.synthetic.plan import CAUSES, TWINS, Plan, Planted

__all__ = ["CAUSES", "TWINS", "Generated", "Plan", "Planted", "write"]
