"""A cgroup of our own is given a twentieth of a core and wants a whole one, for real."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sexton.detect.detectors.cpu.quota_throttling import detect
from sexton.host.host import open_host
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.cgroup import CgroupThrottle
from sexton.record.sampler import Sampler
from sexton.sources.cgroupfs.layout import cgroup_mounts, v1_mounts
from sexton.sources.registry import sources_of
from tests.kernel.conftest import until

pytestmark = pytest.mark.root
BURN = "while True: pass"


@contextmanager
def quota(percent: int) -> Iterator[Path]:
    """A cgroup with that share of one core, wherever the cpu controller lives."""
    mounts = cgroup_mounts(open_host())
    first = v1_mounts(mounts, "cpu")
    top = Path((first or [mount for mount in mounts if mount.fstype == "cgroup2"])[0].mount_point)
    if not first and "cpu" not in (top / "cgroup.subtree_control").read_text().split():
        pytest.skip("the cpu controller is not given to children here")
    place = top / f"sexton-test-{os.getpid()}"
    place.mkdir()
    try:
        if first:
            (place / "cpu.cfs_quota_us").write_text(str(1000 * percent))
        else:
            (place / "cpu.max").write_text(f"{1000 * percent} 100000")
        yield place
    finally:
        # A task that has ended leaves its cgroup some moments later.
        assert until(lambda: _gone(place))


def _gone(place: Path) -> bool:
    try:
        place.rmdir()
    except OSError:
        return not place.exists()
    return True


@contextmanager
def burning(place: Path) -> Iterator[None]:
    child = subprocess.Popen([sys.executable, "-c", BURN])
    try:
        (place / "cgroup.procs").write_text(str(child.pid))
        assert until(lambda: "nr_periods 0\n" not in (place / "cpu.stat").read_text())
        yield
    finally:
        child.kill()
        child.wait()


def test_a_burner_on_a_twentieth_of_a_core_is_found_and_named():
    with quota(5) as place, burning(place), Sampler(open_host(), sources_of(CgroupThrottle)) as it:
        finding = detect(it.run(10.5))
    print(finding.summary)
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.WARNING)
    assert finding.entities["cgroup"][0] == f"/{place.name}"
    shares = [item.number for item in finding.evidence if place.name in item.what]
    assert shares[0] is not None
    assert shares[0] > 50


def test_one_that_has_room_enough_is_not():
    """Nobody else's throttling is our business here: it must only not name ours."""
    with (
        quota(400) as place,
        burning(place),
        Sampler(open_host(), sources_of(CgroupThrottle)) as it,
    ):
        window = it.run(5.5)
    finding = detect(window)
    print(finding.summary)
    assert any(row.path == f"/{place.name}" for row in window.latest(CgroupThrottle) or ())
    assert f"/{place.name}" not in finding.entities.get("cgroup", ())
