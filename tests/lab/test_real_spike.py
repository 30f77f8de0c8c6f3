"""A real stall in a real capture: the search finds its core, its seconds and what grew in them.

A graveyard of real zombies is made first; then perf watches every core, and in the middle of it
reclaim walks the dead for three seconds on one core (the substitute walker, see `test_walk`).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.support.cli import sexton
from tests.support.tools import need
from tests.support.zombies import graveyard

WATCH_S, BEFORE_S, STALL_S = 60, 30, 3.0
WALK = "mem_cgroup_force_empty_write"
PERF = ["perf", "record", "-q", "-F", "97", "-e", "cpu-clock", "-a", "-g", "-k", "CLOCK_MONOTONIC"]


@pytest.mark.root
def test_a_walk_over_real_zombies_is_the_spike_of_a_real_capture(tmp_path: Path):
    need("perf", package="linux-perf")
    core = max(os.sched_getaffinity(0))
    out = tmp_path / "perf.data"
    with graveyard(3_000) as yard:
        if yard.layout.version != 1:
            pytest.skip("the substitute walker is v1's memory.force_empty")
        perf = subprocess.Popen([*PERF, "-o", out, "--", "sleep", str(WATCH_S)])
        time.sleep(BEFORE_S)
        order = f"while :; do echo 0 > {yard.parent}/memory.force_empty; done"
        began = time.time()
        walker = subprocess.Popen(
            ["taskset", "-c", str(core), "sh", "-c", order],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            time.sleep(STALL_S)
        finally:
            os.killpg(walker.pid, signal.SIGKILL)
            walker.wait()
        assert perf.wait(WATCH_S + 60) == 0
    ended = sexton("profile", "spikes", out, "--json")
    assert ended.returncode == 1, ended.stderr.decode()
    spikes = json.loads(ended.stdout)["spikes"]
    found = next(each for each in spikes if WALK in {function["name"] for function in each["grew"]})
    assert found["cores"] == [core]
    assert abs(found["onset"] - began) < 0.5
    assert abs(found["end"] - began - STALL_S) < 1.5
    assert found["kernel"] > 0.8
    assert found["path"]["frames"][0] == "sh"
