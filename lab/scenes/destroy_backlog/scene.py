"""A job with hundreds of cgroups ends; they are dying for half a minute, then gone."""

from __future__ import annotations

import time

from lab.stage import PREFIX, Stage
from lab.zombie_maker import zombie_maker

ID = "destroy_backlog"
TITLE = "a destroy backlog that drains"
SECONDS = 105
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": None,
    "chain": [],
    "present": [],
    "absent": ["zombie_memcgs", "cgroup_churn", "saturated_core", "starved_napi", "nic_resets"],
    "exit": 0,
}

NUMBER = 800
DRAIN_S = 30.0
_STEPS = 60


def play(stage: Stage) -> None:
    """Remove all cgroups at once, then free their pages a few at a time."""
    stage.wait(40)
    maker = stage.enter(zombie_maker(PREFIX))
    stage.note(f"{NUMBER} cgroups are removed at once")
    maker.make(NUMBER, "task-%d")
    stage.note("their pages are freed, a few at a time")
    pins = sorted(maker.pins.iterdir())
    began = time.monotonic()
    for step in range(_STEPS):
        for pin in pins[step::_STEPS]:
            pin.unlink()
        time.sleep(max(0.0, began + (step + 1) * DRAIN_S / _STEPS - time.monotonic()))
    maker.free()
    stage.note("the last one is freed")
    stage.wait(25)
