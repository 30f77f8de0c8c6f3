"""Reclaim, pressure, faults and flushes made on this machine for real, and what is said of them."""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sexton.detect.detectors.cgroups import rstat_contention
from sexton.detect.detectors.memory import direct_reclaim, memory_pressure, page_fault_storm
from sexton.detect.detectors.memory.page_fault_storm import tally
from sexton.detect.families import is_rstat
from sexton.detect.stacks import caught
from sexton.host.host import open_host
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.task import Process, ProcessCgroup, Thread
from sexton.model.rows.trace import StackCount
from sexton.model.window import Batch, Window
from sexton.record.sampler import Sampler
from sexton.replay import span
from sexton.replay import window as replay
from sexton.sources.registry import sources_of
from sexton.store.recording import Recording
from sexton.store.schema import tables
from tests.support.memory_load import (
    FAULT,
    READ,
    STATS,
    far_below,
    limit,
    memory_cgroup,
    running,
    unified_cgroup,
)
from tests.support.recordings import write_sealed
from tests.support.tools import need

pytestmark = [pytest.mark.root, pytest.mark.alone]

#: What a Python program is called, cut as the kernel cuts it.
NAME = Path(sys.executable).name[:15]
KINDS = (VmCounter, Pressure, CoreTimes, Process, Thread, ProcessCgroup, StackCount)
DETECTORS = (
    direct_reclaim.detect, memory_pressure.detect, page_fault_storm.detect, rstat_contention.detect
)  # fmt: skip


@pytest.fixture
def cgroup() -> Iterator[Path]:
    with memory_cgroup() as place:
        yield place


@pytest.fixture
def large_file(tmp_path: Path) -> Path:
    """Without a single block: read, it is page cache all the same."""
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    return path


def watched(seconds: float) -> Window:
    with Sampler(open_host(), sources_of(*KINDS)) as sampler:
        return sampler.run(seconds)


def again(window: Window, place: Path) -> Window:
    """The same window, written down and read back."""
    batches: dict[type[Row], list[Batch[Any]]] = defaultdict(list)
    for kind in tables().values():
        batches[kind] += window.batches(kind) or ()
    write_sealed(place, [{kind: found for kind, found in batches.items() if found}])
    recording = Recording(place)
    return replay.window(recording, span.everything(recording)).window


def told(finding: Finding) -> str:
    """Everything but what the states of the sources say: a replay has none of ours."""
    return repr(replace(finding, missing=()))


def same_replayed(window: Window, place: Path) -> None:
    live = [told(detect(window)) for detect in DETECTORS]
    replayed = again(window, place)
    assert [told(detect(replayed)) for detect in DETECTORS] == live


def test_tasks_that_read_through_a_full_cgroup_reclaim_and_wait_though_the_machine_is_not_short(
    cgroup: Path, large_file: Path, tmp_path: Path
):
    need("perf", package="linux-perf")
    limit(cgroup, 96 << 20)  # the readers themselves are more than half of that
    with ExitStack() as stack:
        pids = [stack.enter_context(running(READ, str(large_file), place=cgroup)) for _ in range(6)]
        window = watched(8.0)
    finding = direct_reclaim.detect(window)
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.WARNING), finding
    assert {f"{NAME}[{pid}]" for pid in pids} & set(finding.entities["task"]), finding.entities
    assert f"/{cgroup.name}" in finding.entities["cgroup"]
    scanned = finding.evidence[0]
    assert scanned.number is not None
    assert scanned.number > 10_000, scanned
    if Path("/proc/pressure/memory").exists():
        assert "waited for memory" in finding.summary
        pressure = memory_pressure.detect(window)
        assert pressure.verdict is Verdict.PRESENT, pressure.summary
        assert "the machine itself has enough memory" in pressure.summary
    same_replayed(window, tmp_path / "recording")


def watched_while_it_runs(pid: int, seconds: float) -> Window:
    """A window in which this process had its core for 90 % of the time: it has priority, but the
    host of a virtual machine may take the core away."""
    deadline = time.monotonic() + 180
    while True:
        before_s, began_s = ran_s(pid), time.monotonic()
        window = watched(seconds)
        share = (ran_s(pid) - before_s) / (time.monotonic() - began_s)
        if share >= 0.9:
            return window
        assert time.monotonic() < deadline, f"it never has the core, only {share:.0%} of it"


def ran_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def test_memory_taken_and_given_back_page_by_page_is_a_storm(tmp_path: Path):
    need("perf", package="linux-perf")
    cores = sorted(os.sched_getaffinity(0))
    rank = (
        "first" if len(cores) > 1 else "last"
    )  # before all others, where the recorder has a core too
    with running(FAULT, str(cores[-1]), rank) as pid:
        window = watched_while_it_runs(pid, 8.0)
    finding = page_fault_storm.detect(window)
    ours = f"{NAME}[{pid}]"
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.WARNING), finding
    assert finding.entities["core"] == (str(cores[-1]),)
    assert finding.entities["task"] == (ours,)
    (share,) = [
        evidence
        for evidence in finding.evidence
        if evidence.what.startswith(f"core {cores[-1]} held by")
    ]
    assert share.number is not None
    assert share.number >= page_fault_storm.HELD.value * 0.9
    counted = tally(window, (window.start_mono, window.end_mono))
    assert counted is not None
    assert max(counted.minor.values(), key=lambda process: process.amount).row.pid == pid
    same_replayed(window, tmp_path / "recording")


@pytest.mark.whole
def test_real_readers_on_two_cores_that_flush_a_deep_tree_at_once_contend(tmp_path: Path):
    """Each read of `cpu.stat` on v2 flushes under one lock, and 200 levels have to be told of every
    switch. Whether the cores are *held* by it is up to what else this machine does."""
    need("perf", package="linux-perf")
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("one core cannot contend with itself")
    with unified_cgroup() as place, far_below(place, 200) as deep, ExitStack() as stack:
        arguments = str(place / "cpu.stat")
        readers = [
            stack.enter_context(running(STATS, arguments, str(core), place=deep))
            for core in cores
            for _ in range(2)
        ]
        window = watched(6.0)
    stacks = caught(window, is_rstat)
    assert stacks is not None
    assert {pid for pid, _, _ in stacks.leading()} <= set(readers), stacks.threads
    finding = rstat_contention.detect(window)
    assert finding.verdict is Verdict.PRESENT, finding
    # A hypervisor may give one of the two too little time to be named.
    named = set(finding.entities["core"])
    assert named
    assert named <= {str(core) for core in cores}
    named = {int(name.rpartition("[")[2].rstrip("]")) for name in finding.entities["task"]}
    assert named <= set(readers)
    same_replayed(window, tmp_path / "recording")
