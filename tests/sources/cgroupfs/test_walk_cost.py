"""What one read at the root costs this node."""

from __future__ import annotations

import os

import pytest

from sexton.errors import SourceAbsent
from sexton.model.cgroup import WalkCost
from sexton.sources.cgroupfs import walk_cost
from sexton.sources.cgroupfs.estimate import Estimate
from sexton.sources.cgroupfs.walk_cost import WalkCosts, nic_cores, verdict
from sexton.sources.host import open_host
from tests.sources.cgroupfs.trees import Tree, recorded

DEVICE = "/sys/class/net/eth0/device"


def test_the_time_a_copied_file_takes_tells_nothing(tmp_path):
    with pytest.raises(SourceAbsent, match="only on the node itself"):
        list(WalkCosts(recorded(tmp_path, "6.1", "6.1-v2").host()).collect())


def test_a_stall_is_announced_and_not_caused(monkeypatch, tmp_path):
    def never(*_: object, **__: object) -> None:
        raise AssertionError("the root was read")

    monkeypatch.setattr(walk_cost, "run", never)
    row = one(Estimate("memory.numa_stat", "/a", 12, 0.0009, 4.8), tmp_path)
    assert row.root_s is None
    assert row.note == (
        "memory.numa_stat at the root: would stall a core for about 4.8 s; not caused"
    )


def test_a_cheap_file_is_read_at_the_root_in_a_child(tmp_path):
    (tmp_path / "memory.stat").write_text("cache 0\n" * 50)
    row = one(Estimate("memory.stat", "/a", 12, 0.0009, 0.02), tmp_path)
    assert row.root_s is not None
    assert 0 < row.root_s < 2
    assert row.note.startswith("memory.stat read at the root")


def test_a_root_without_the_file_says_so(tmp_path):
    row = one(Estimate("memory.stat", "/a", 12, 0.0009, 0.02), tmp_path)
    assert row.root_s is None
    assert "No such file" in row.note


def test_an_estimate_that_settles_the_matter_spares_the_node_a_child(tmp_path):
    (tmp_path / "memory.stat").write_text("cache 0\n")
    row = one(Estimate("memory.stat", "/a", 12, 0.0009, 0.001), tmp_path)
    assert row.root_s is None
    assert "too quick to ask" in row.note


def test_an_estimate_by_leaves_alone_is_called_an_upper_bound():
    assert "at the most" in verdict(1, 3.0)


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
    cores, note = walk_cost._where(frozenset(os.sched_getaffinity(0)))
    assert cores is None
    assert "every core" in note


def test_otherwise_the_nic_keeps_its_cores(monkeypatch):
    monkeypatch.setattr(walk_cost.os, "sched_getaffinity", lambda _: {0, 1, 2})
    cores, _ = walk_cost._where(frozenset({0, 2}))
    assert cores == {1}


def one(guess: Estimate, top) -> WalkCost:
    return WalkCosts(open_host())._row(str(top), guess)
