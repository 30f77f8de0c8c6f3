"""A real stall in a real capture: the search finds its core, its seconds and what grew in them.

A zombie_maker of real zombies is made first; then perf watches every core, and in the middle of it
reclaim walks the dead for three seconds on one core (the substitute walker, see `test_walk`): the
one with the least to do, and in real time, since a core that others hold all the while has no
spike. A minute in which others held that core too, or kept perf from sampling, is captured anew.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import sexton
from tests.support.tools import need
from tests.support.zombies import zombies

WATCH_S, BEFORE_S, STALL_S = 60, 30, 3.0
#: Besides the walk, the core has to be idle for so much of the minute.
IDLE_SHARE, MOST_S = 0.5, 600
WALK = "mem_cgroup_force_empty_write"
PERF = ["perf", "record", "-q", "-B", "-F", "97", "-e", "cpu-clock", "-a", "-g"]
PERF += ["-k", "CLOCK_MONOTONIC"]


def idle_ticks() -> dict[int, int]:
    """What each core that we may use has spent doing nothing."""
    rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    cores = {int(row[0][3:]): int(row[4]) for row in rows if re.fullmatch(r"cpu\d+", row[0])}
    return {core: ticks for core, ticks in cores.items() if core in os.sched_getaffinity(0)}


def captured(parent: Path, out: Path) -> tuple[int, float, float]:
    """A minute of every core, in which one walks the dead: which, since when, and what share of the
    rest it was idle."""
    perf = subprocess.Popen([*PERF, "-o", out, "--", "sleep", str(WATCH_S)])
    before = idle_ticks()
    time.sleep(BEFORE_S)
    core = max(before, key=lambda tick: idle_ticks()[tick] - before[tick])
    order = f"while :; do echo 0 > {parent}/memory.force_empty; done"
    began = time.time()
    walker = subprocess.Popen(
        ["chrt", "-f", "1", "taskset", "-c", str(core), "sh", "-c", order],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        time.sleep(STALL_S)
    finally:
        os.killpg(walker.pid, signal.SIGKILL)
        walker.wait()
    assert perf.wait(WATCH_S + 60) == 0
    idle_s = (idle_ticks()[core] - before[core]) / os.sysconf("SC_CLK_TCK")
    return core, began, idle_s / (WATCH_S - STALL_S)


def walks(out: Path) -> list[dict[str, Any]] | None:
    """The spikes that grew by the walk; `None` if too few samples were taken to tell."""
    ended = sexton("profile", "spikes", out, "--json")
    if ended.returncode == 3:
        return None
    spikes = json.loads(ended.stdout)["spikes"]
    assert ended.returncode == bool(spikes), ended.stderr.decode()
    return [spike for spike in spikes if WALK in {function["name"] for function in spike["grew"]}]


@pytest.mark.alone
@pytest.mark.whole
@pytest.mark.root
def test_a_walk_over_real_zombies_is_the_spike_of_a_real_capture(tmp_path: Path):
    need("perf", package="linux-perf")
    out = tmp_path / "perf.data"
    with zombies(3_000) as maker:
        if maker.layout.version != 1:
            pytest.skip("the substitute walker is v1's memory.force_empty")
        spikes, deadline = None, time.monotonic() + MOST_S
        while spikes is None:
            assert time.monotonic() < deadline, "no core of this machine is idle for a minute"
            core, began, idle = captured(maker.parent, out)
            spikes = walks(out) if idle >= IDLE_SHARE else None
    (found,) = spikes
    assert found["cores"] == [core]
    assert abs(found["onset"] - began) < 1.0
    assert abs(found["end"] - began - STALL_S) < 1.5
    assert found["kernel"] > 0.8
    assert found["path"]["frames"][0] == "sh"
