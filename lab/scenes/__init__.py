"""Incidents and their healthy twins, one folder each: `scene.py` plays it, `README.md` says what is
real.

See `lab.stage` for the parts of a scene, and `lab.play` for playing one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

#: In the order in which they were added.
NAMES = (
    "whole_chain",
    "container_churn",
    "timer_zombies",
    "zombies_only",
    "nic_reset_only",
    "pinned_hog",
    "cfs_quota",
    "direct_reclaim",
    "packet_flood",
    "leaked_scopes",
    "destroy_backlog",
    "page_faults",
    "idle",
    "busy",
    "not_recorded",
    "oom_loop",
    "oom_node",
    "full_limit",
    "cpu_starved",
    "full_cores",
    "rt_hog",
    "rt_calm",
    "stuck_nic",
    "sound_nic",
    "slow_leak",
    "slow_churn",
    "two_leakers",
    "two_tenants",
    "starved_nic",
    "paced_nic",
    "full_node",
    "oom_zombies",
    "oom_job",
)
FOLDER = Path(__file__).parent


def load(name: str) -> ModuleType:
    """The module of one scene."""
    return importlib.import_module(f"lab.scenes.{name}.scene")


def all_scenes() -> Mapping[str, ModuleType]:
    """Every scene by its id."""
    return {name: load(name) for name in NAMES}
