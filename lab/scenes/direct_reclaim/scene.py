"""Allocations have to reclaim memory first, and a core goes into it."""

from __future__ import annotations

from pathlib import Path

from lab.stage import Stage

ID = "direct_reclaim"
TITLE = "direct reclaim"
SECONDS = 100
NEEDS = frozenset({"root"})
EXPECTED = {
    "root": "direct_reclaim",
    "chain": ["direct_reclaim", "saturated_core"],
    "present": ["direct_reclaim", "saturated_core"],
    "absent": [
        "zombie_memcgs",
        "cgroup_churn",
        "starved_napi",
        "nic_resets",
        "quota_throttling",
        "softirq_flood",
        "rstat_contention",
    ],
    "exit": 1,
}

LIMIT_BYTES = 16 << 20
BURST_S = 10
#: Of what is available, taken away before the readers begin.
KEPT = 0.75


def play(stage: Stage) -> None:
    """Three bursts of reading through a page cache that is too small."""
    big = stage.folder / "sparse"
    with big.open("wb") as file:
        file.truncate(8 << 30)
    stage.wait(40)
    if stage.own_machine:
        _whole_node(stage, big)
    else:
        _one_cgroup(stage, big)
    stage.wait(10)


def _one_cgroup(stage: Stage, big: Path) -> None:
    """Where others live on the node, only our own cgroup runs out of memory."""
    made = stage.cgroup("memory", "reader")
    limit = "memory.limit_in_bytes" if stage.layout.version == 1 else "memory.max"
    (made / limit).write_text(str(LIMIT_BYTES))
    for _ in range(3):
        stage.moment("a reader reclaims page by page inside its limit")
        reader = stage.hold("reader", big, BURST_S, core=stage.cores[-1], inside=[made])
        stage.finish(reader, BURST_S + 60)
        stage.wait(5)


def _whole_node(stage: Stage, big: Path) -> None:
    """The node's own memory is taken, and two readers fight for the rest with kswapd."""
    told = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) for line in told if line.startswith("MemAvailable"))
    stage.moment(f"{KEPT:.0%} of the available memory is taken")
    stage.actor("keeper", int(available * 1024 * KEPT), may_die=True)
    stage.until("the memory to be taken", lambda: "kept" in stage.said(), 120)
    for _ in range(3):
        stage.moment("two readers fill what is left of the page cache")
        readers = [stage.hold("reader", big, BURST_S, core=core) for core in stage.cores[-2:]]
        for each in readers:
            stage.finish(each, BURST_S + 60)
        stage.wait(5)
