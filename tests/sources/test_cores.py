"""The cores Sexton may use: by affinity and quota, and away from the NIC's interrupts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from sexton.host.host import open_host
from sexton.sources import cores
from sexton.sources.cores import cores_for_us, nic_cores, off_the_nic, quota_cores, quotas
from tests.sources.cgroupfs.trees import Tree, mounts
from tests.support.trees import plant

DEVICE = "/sys/class/net/eth0/device"


def test_finds_the_cores_of_a_pci_nic(tmp_path):
    tree = Tree(tmp_path)
    tree.write(f"{DEVICE}/msi_irqs/40")
    tree.write("/proc/irq/40/effective_affinity_list", "3\n")
    tree.write("/proc/irq/40/smp_affinity_list", "0-7\n")
    assert nic_cores(tree.host()) == {3}


def test_finds_the_cores_of_a_virtio_nic_through_the_device_above(tmp_path):
    tree = Tree(tmp_path)
    tree.make("/sys/devices/pci/virtio2")
    tree.make("/sys/class/net/eth0")
    (tmp_path / DEVICE.lstrip("/")).symlink_to("../../../devices/pci/virtio2")
    tree.write("/sys/devices/pci/msi_irqs/38")
    tree.write("/proc/irq/38/effective_affinity_list", "\n")
    tree.write("/proc/irq/38/smp_affinity_list", "0-1\n")
    assert nic_cores(tree.host()) == {0, 1}


def test_a_node_whose_every_core_serves_the_nic_is_pinned_nowhere_and_says_so():
    cpus, note = cores._spare(frozenset(os.sched_getaffinity(0)))
    assert cpus is None
    assert "every core" in note


def test_otherwise_the_nic_keeps_its_cores(monkeypatch):
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: {0, 1, 2})
    cpus, _ = cores._spare(frozenset({0, 2}))
    assert cpus == {1}


def test_a_node_without_a_nic_is_pinned_nowhere_and_says_so(tmp_path):
    cpus, note = off_the_nic(Tree(tmp_path).host())
    assert cpus is None
    assert "no NIC interrupts" in note


def test_a_host_is_asked_once(tmp_path, monkeypatch):
    host = Tree(tmp_path).host()
    first = off_the_nic(host)
    monkeypatch.setattr(cores, "nic_cores", lambda _: 1 / 0)
    assert off_the_nic(host) is first


V2 = mounts("/ /sys/fs/cgroup cgroup2 rw")
V1 = mounts("/ /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct", "/ /sys/fs/cgroup/x cgroup2 rw")
POD = "/kubepods/burstable/pod1/c1"


def own_quotas(root: Path, mountinfo: str, cgroup: str, files: Mapping[str, str]) -> list[float]:
    there = {f"/sys/fs/cgroup/{name}": content for name, content in files.items()}
    written = {"/proc/1/mountinfo": mountinfo, "/proc/1/cgroup": cgroup, **there}
    return list(quotas(plant(root, written)))


def test_on_v2_our_own_quota_and_those_above_count(tmp_path: Path):
    files = {
        "kubepods/cpu.max": "max 100000\n",
        "kubepods/burstable/cpu.max": "400000 100000\n",
        "kubepods/burstable/pod1/cpu.max": "150000 100000\n",
        "kubepods/burstable/pod1/c1/cpu.max": "max 100000\n",
        "kubepods/other/cpu.max": "1000 100000\n",
    }
    assert own_quotas(tmp_path, V2, f"0::{POD}\n", files) == [1.5, 4.0]


def test_on_v1_it_is_the_cpu_controllers_cgroup(tmp_path: Path):
    files = {
        "cpu,cpuacct/a/b/cpu.cfs_quota_us": "50000\n",
        "cpu,cpuacct/a/b/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/a/cpu.cfs_quota_us": "-1\n",
        "cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/m/cpu.cfs_quota_us": "1000\n",
        "cpu,cpuacct/m/cpu.cfs_period_us": "100000\n",
    }
    text = "9:memory:/m\n3:cpuset:/m\n2:cpu,cpuacct:/a/b\n0::/\n"
    assert own_quotas(tmp_path, V1, text, files) == [0.5]


@pytest.mark.parametrize("root", [POD, "/somewhere/else"])
def test_a_container_that_sees_its_own_cgroup_alone_is_asked_there(tmp_path: Path, root: str):
    mountinfo = mounts(f"{root} /sys/fs/cgroup/cpu cgroup rw,cpu")
    files = {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"}
    assert own_quotas(tmp_path, mountinfo, f"4:cpu:{POD}\n", files) == [2.0]


def test_a_name_that_only_begins_like_the_mounts_root_is_not_below_it(tmp_path: Path):
    mountinfo = mounts("/a /sys/fs/cgroup cgroup2 rw")
    files = {"cpu.max": "100000 100000\n", "b/cpu.max": "900000 100000\n"}
    assert own_quotas(tmp_path, mountinfo, "0::/ab\n", files) == [1.0]


def test_without_cgroups_there_is_no_quota(tmp_path: Path):
    assert list(quotas(plant(tmp_path, {"/proc/1/stat": ""}))) == []
    assert own_quotas(tmp_path, V2, "junk\n:\n0::\n7\n", {}) == []


@pytest.mark.parametrize("told", ["", "max", "5", "0 100000", "100000 0", "a b", "-1 100000"])
def test_what_is_no_quota_is_none(text: str):
    assert quota_cores(text) is None


def test_a_part_of_a_core_is_one_and_more_than_there_are_is_none_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    for number, (quota, wanted) in enumerate(
        [("1000", 1), ("100000", 1), ("110000", 2), ("900000", 4), ("max", 4)]
    ):
        written = {
            "/proc/1/mountinfo": V2,
            "/proc/1/cgroup": "0::/a\n",
            "/sys/fs/cgroup/a/cpu.max": f"{quota} 100000\n",
        }
        assert cores_for_us(plant(tmp_path / str(number), written)) == wanted


TELL = """
import os, sys
from pathlib import Path
from sexton.sources.cores import quotas
from sexton.host.host import open_host
Path(sys.argv[1]).write_text(str(os.getpid()))
print(min(quotas(open_host()), default=None))
"""


@pytest.mark.root
def test_a_real_quota_is_found(request: pytest.FixtureRequest):
    tops = {"/sys/fs/cgroup/cpu": 1, "/sys/fs/cgroup/cpu,cpuacct": 1, "/sys/fs/cgroup": 2}
    for top, version in tops.items():
        place = Path(top) / f"sexton-test-{os.getpid()}"
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if version == 1 else ("cpu.max",)
        try:
            place.mkdir()
        except OSError:
            continue
        request.addfinalizer(place.rmdir)
        if all((place / name).exists() for name in names):
            break
    else:
        pytest.skip("no cpu controller in a hierarchy that can be written to")
    if version == 1:
        (place / "cpu.cfs_period_us").write_text("100000")
        (place / "cpu.cfs_quota_us").write_text("70000")
    else:
        (place / "cpu.max").write_text("70000 100000")
    argv = [sys.executable, "-c", TELL, str(place / "cgroup.procs")]
    ran = subprocess.run(argv, capture_output=True, check=True, timeout=60)
    assert float(ran.stdout) <= 0.7


def test_this_machine_has_at_least_one_core_for_us():
    assert 1 <= cores_for_us(open_host()) <= len(os.sched_getaffinity(0))
