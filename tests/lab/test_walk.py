"""A real walk over real zombies that burns a real core, proven by its kernel stacks.

The incident's own walk was mended in 5.8; reclaim in the zombies' parent is the substitute that
still walks them one by one on today's kernels.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support.tools import need
from tests.support.zombies import zombies

DIAGNOSE = [sys.executable, "-m", "sexton", "diagnose", "--json", "--seconds", "6"]


@pytest.mark.whole
@pytest.mark.alone
@pytest.mark.root
def test_stacks_prove_that_the_walk_over_the_dead_holds_the_core():
    need("perf", package="linux-perf")
    core = str(max(os.sched_getaffinity(0)))
    with zombies(1_500) as maker:
        if maker.layout.version != 1:
            pytest.skip("the substitute walker is v1's memory.force_empty")
        order = f"while :; do echo 0 > {maker.parent}/memory.force_empty; done"
        # In real time, so that a test machine's other work does not take its share of the core.
        walker = subprocess.Popen(
            ["chrt", "-f", "1", "taskset", "-c", core, "sh", "-c", order],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            time.sleep(0.5)
            ended = subprocess.run(
                [*DIAGNOSE, "--stacks"], capture_output=True, text=True, timeout=180, check=False
            )
        finally:
            os.killpg(walker.pid, signal.SIGKILL)
            walker.wait()
    answer = json.loads(ended.stdout)
    assert ended.returncode == 1
    links = {link["id"]: link for chain in answer["chains"] for link in chain["links"]}
    assert links["zombie_walk_burns_core"]["strength"] == "proven", answer["chains"]
    findings = {finding["id"]: finding for finding in answer["findings"]}
    held = findings["saturated_core"]
    assert any(task.startswith("sh[") for task in held["entities"]["task"]), held
    assert any("kernel function" in item["what"] for item in held["evidence"])
    assert not [step for step in answer["plan"] if "perf record" in step["do"]]
