"""Session scopes without processes whose directories stay: many live cgroups, no zombies."""

from __future__ import annotations

from lab.stage import PREFIX, Stage
from lab.zombie_maker import scratch_cgroup

ID = "leaked_scopes"
TITLE = "leaked scopes with live directories"
SECONDS = 75
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "leaked_scopes",
    "chain": ["leaked_scopes"],
    "present": ["leaked_scopes"],
    "absent": [
        "zombie_memcgs",
        "cgroup_churn",
        "crash_looping_unit",
        "saturated_core",
        "starved_napi",
        "nic_resets",
    ],
    "named": ["600 of 600 scopes"],
    "exit": 1,
}
LIVE = "leaked_scopes"

SCOPES = 600


def prepare(stage: Stage) -> None:
    """Create the scopes before the recording."""
    _, top = stage.enter(scratch_cgroup(PREFIX))
    for number in range(1, SCOPES + 1):
        (top / f"session-{number}.scope").mkdir()
    stage.substitute("the lab created the scopes' directories, not logind")


def play(stage: Stage) -> None:
    """Wait."""
    stage.note(f"{SCOPES} scopes exist without a process")
    stage.wait(70)
