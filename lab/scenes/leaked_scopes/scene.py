"""Session scopes whose directories stay, without a process in them: many live, none dead."""

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
    "exit": 1,
}
LIVE = "leaked_scopes"

SCOPES = 600


def prepare(stage: Stage) -> None:
    """They have been left since long ago."""
    _, top = stage.enter(scratch_cgroup(PREFIX))
    for number in range(1, SCOPES + 1):
        (top / f"session-{number}.scope").mkdir()
    stage.substitute("the scopes' directories are made by the lab: no logind forgot them")


def play(stage: Stage) -> None:
    """Nothing happens; they are just there."""
    stage.note(f"{SCOPES} scopes are there without a process")
    stage.wait(70)
