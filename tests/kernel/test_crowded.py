"""Many busy tasks of our own on few cores, for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sexton.detect.detectors.cpu.cpu_pressure import CROWDED, detect
from sexton.host.host import open_host
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.cgroup import CgroupCpu
from sexton.model.rows.cpu import CoreTimes, ReadyTasks
from sexton.model.rows.memory import Pressure
from sexton.model.rows.task import Process
from sexton.record.sampler import Sampler
from sexton.sources.registry import sources_of
from tests.kernel.conftest import until

pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.whole]
#: They end by themselves, should nobody end them.
BURN = """
import time
open("/proc/self/comm", "w").write("sexton-burn")
end = time.monotonic() + 90
while time.monotonic() < end: pass
"""
KINDS = (CoreTimes, ReadyTasks, Pressure, Process, CgroupCpu)


@contextmanager
def burning(number: int) -> Iterator[None]:
    children = [subprocess.Popen([sys.executable, "-I", "-S", "-c", BURN]) for _ in range(number)]
    try:
        assert until(lambda: all(_has_run(child.pid) for child in children))
        yield
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()


def _has_run(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[11]) > 2


def test_a_dozen_tasks_per_core_starve_each_other():
    cores = os.cpu_count() or 1
    with burning(12 * cores), Sampler(open_host(), sources_of(*KINDS)) as sampler:
        finding = detect(sampler.run(12))
    print(finding.summary)
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.CRITICAL)
    assert {f"{core}" for core in os.sched_getaffinity(0)} <= {*finding.entities["core"]}
    assert "sexton-burn" in finding.summary, (
        "who takes the time, or who waits beside a busy neighbour"
    )
    assert finding.evidence[0].number is not None
    assert finding.evidence[0].number >= CROWDED.value
