"""A cgroup of our own with 40 MB, and a process that wants more, for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sexton.detect.detectors.memory.oom_kills import detect
from sexton.host.host import open_host
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.cgroup import CgroupMemory
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.memory import VmCounter
from sexton.model.window import Window
from sexton.record.sampler import Sampler
from sexton.sources.cgroupfs.layout import read_layout
from sexton.sources.registry import sources_of
from tests.kernel.conftest import until

#: Real kills stay in the node's log, where every diagnosis of the next hour finds them.
pytestmark = [pytest.mark.root, pytest.mark.alone, pytest.mark.whole]
LIMIT = 40 << 20
HOG = """
import os, sys
open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
held = []
while True:
    held.append(bytearray(b"x" * (1 << 20)))
"""


@contextmanager
def limited(name: str) -> Iterator[Path]:
    """A memory cgroup of 40 MB, wherever memory lives."""
    layout = read_layout(open_host())
    top = Path(layout.mount_point or "")
    if layout.version == 2 and "memory" not in (top / "cgroup.subtree_control").read_text().split():
        pytest.skip("the memory controller is not given to children here")
    place = top / f"sexton-test-{os.getpid()}-{name}"
    place.mkdir()
    try:
        limit = "memory.max" if layout.version == 2 else "memory.limit_in_bytes"
        (place / limit).write_text(str(LIMIT))
        yield place
    finally:
        assert until(lambda: _gone(place))


def _gone(place: Path) -> bool:
    try:
        place.rmdir()
    except OSError:
        return not place.exists()
    return True


def fill(place: Path) -> int:
    """A process that takes all there is; its id, after it was killed."""
    hog = subprocess.Popen([sys.executable, "-I", "-S", "-c", HOG, str(place)])
    assert hog.wait(timeout=60) == -9
    return hog.pid


def look(seconds: float) -> Window:
    kinds = (KernelEvent, VmCounter, CgroupMemory)
    with Sampler(open_host(), sources_of(*kinds)) as sampler:
        return sampler.run(seconds)


def test_a_process_killed_at_its_limit_is_named_with_the_limit_and_its_cgroup():
    with limited("once") as place:
        pid = fill(place)
        window = look(1.5)
    finding = detect(window)
    print(finding.summary)
    assert finding.verdict is Verdict.PRESENT
    assert finding.severity.rank >= Severity.WARNING.rank
    evidence = {each.what: each for each in finding.evidence}
    assert f"OOM kills in /{place.name}" in evidence, "our cgroup is among the limits"
    assert any(f"[{pid}]" in what for what in evidence), "and so is our process"
    row = next(row for row in window.latest(CgroupMemory) or () if row.path == f"/{place.name}")
    assert (row.limit_bytes, row.killed) == (LIMIT, 1)
    assert row.hits


def test_three_kills_are_a_loop_and_are_still_told_of_afterwards():
    with limited("loop") as place:
        tasks = [fill(place) for _ in range(3)]
    finding = detect(look(1.5))  # the cgroup is gone, and the window began after the kills
    print(finding.summary)
    assert finding.severity is Severity.CRITICAL
    assert f"/{place.name}" in finding.entities["cgroup"]
    named = " ".join(finding.entities["task"])
    assert all(f"[{pid}]" in named for pid in tasks)
