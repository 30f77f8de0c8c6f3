"""A real stall in a real capture: the search finds its core, its seconds and what grew in them.

A graveyard of real zombies is made first; then perf watches every core, and in the middle of it
reclaim walks the dead for three seconds on one core (the substitute walker, see `test_walk`): the
one with the least to do, and in real time, since a core that others hold all the while has no
spike. Where they come and go beside it, it is looked at again.
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
from tests.support.zombies import graveyard

WATCH_S, BEFORE_S, STALL_S = 60, 30, 3.0
TRIES = 3
WALK = "mem_cgroup_force_empty_write"
PERF = ["perf", "record", "-q", "-F", "97", "-e", "cpu-clock", "-a", "-g", "-k", "CLOCK_MONOTONIC"]


def idle_ticks() -> dict[int, int]:
    """What each core that we may use has spent doing nothing."""
    rows = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    cores = {int(row[0][3:]): int(row[4]) for row in rows if re.fullmatch(r"cpu\d+", row[0])}
    return {core: ticks for core, ticks in cores.items() if core in os.sched_getaffinity(0)}


def captured(parent: Path, out: Path) -> tuple[int, float]:
    """A minute of every core, in which one walks the dead: which, and since when."""
    perf = subprocess.Popen([*PERF, "-o", out, "--", "sleep", str(WATCH_S)])
    before = idle_ticks()
    time.sleep(BEFORE_S)
    core = max(before, key=lambda each: idle_ticks()[each] - before[each])
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
    return core, began


def walks(out: Path) -> list[dict[str, Any]]:
    """The spikes that grew by the walk."""
    ended = sexton("profile", "spikes", out, "--json")
    spikes = json.loads(ended.stdout)["spikes"]
    assert ended.returncode == bool(spikes), ended.stderr.decode()
    return [each for each in spikes if WALK in {function["name"] for function in each["grew"]}]


@pytest.mark.alone
@pytest.mark.whole
@pytest.mark.root
def test_a_walk_over_real_zombies_is_the_spike_of_a_real_capture(tmp_path: Path):
    need("perf", package="linux-perf")
    out = tmp_path / "perf.data"
    with graveyard(3_000) as yard:
        if yard.layout.version != 1:
            pytest.skip("the substitute walker is v1's memory.force_empty")
        for _ in range(TRIES):
            core, began = captured(yard.parent, out)
            if walks(out):
                break
    (found,) = walks(out)
    assert found["cores"] == [core]
    assert abs(found["onset"] - began) < 1.0
    assert abs(found["end"] - began - STALL_S) < 1.5
    assert found["kernel"] > 0.8
    assert found["path"]["frames"][0] == "sh"
