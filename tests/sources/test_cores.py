"""The cores a costly read may run on: away from the NIC's interrupts."""

from __future__ import annotations

import os

from sexton.sources import cores
from sexton.sources.cores import nic_cores, off_the_nic
from tests.sources.cgroupfs.trees import Tree

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


def test_a_host_is_looked_up_once(tmp_path, monkeypatch):
    host = Tree(tmp_path).host()
    first = off_the_nic(host)
    monkeypatch.setattr(cores, "nic_cores", lambda _: 1 / 0)
    assert off_the_nic(host) is first
