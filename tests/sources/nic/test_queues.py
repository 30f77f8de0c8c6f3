"""Queue → interrupt → cores."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent
from sexton.host.host import open_host
from sexton.model.rows.net import NicQueue
from sexton.sources.nic.devices import physical
from sexton.sources.nic.queues import Queues, queue_of
from tests.sources.nic.trees import tree
from tests.support.trees import plant


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("virtio2-input.0", (0, "rx")),
        ("virtio2-output.11", (11, "tx")),
        ("virtio0-input", (0, "rx")),
        ("virtio2-config", (None, "rxtx")),
        ("virtio2-control", (None, "rxtx")),
        ("eth0-Tx-Rx-5", (5, "rxtx")),
        ("ena-mgmnt@pci:0000:20:03.0", (None, "rxtx")),
        ("mlx5_comp5@pci:0000:3b:00.0", (5, "rxtx")),
        ("mlx5_comp5", (5, "rxtx")),
        ("mlx5_async0@pci:0000:3b:00.0", (None, "rxtx")),
        ("eth0-TxRx-3", (3, "rxtx")),
        ("i40e-eth0-TxRx-3", (3, "rxtx")),
        ("ice-ens1f0-TxRx-3", (3, "rxtx")),
        ("eth0-rx-1", (1, "rx")),
        ("eth0-tx-1", (1, "tx")),
        ("mana_q7@pci:7870:00:00.0", (7, "rxtx")),
        ("mana_hwc@pci:7870:00:00.0", (None, "rxtx")),
        ("nvme0q1", (None, "rxtx")),
        ("", (None, "rxtx")),
    ],
)
def test_the_queue_is_in_the_name(name: str, expected: tuple[int | None, str]):
    assert queue_of(name) == expected


def test_gve_blocks_transmit_in_their_first_half():
    names = [f"gve-ntfy-blk{block}@pci:0000:00:04.0" for block in range(4)]
    assert [queue_of(name, 4) for name in names] == [(0, "tx"), (1, "tx"), (0, "rx"), (1, "rx")]
    assert queue_of("gve-mgmnt@pci:0000:00:04.0", 4) == (None, "rxtx")


@pytest.mark.parametrize(
    ("name", "virtio", "first"),
    [("virtio-6.18", 2, 37), ("virtio-6.1", 0, 30), ("virtio-5.10", 0, 30)],
)
def test_a_virtio_devices_interrupts_are_its_parents(name: str, virtio: int, first: int):
    rows = Queues(tree(name)).collect()
    assert [(row.queue, row.direction, row.irq, row.irq_name) for row in rows] == [
        (None, "rxtx", first, f"virtio{virtio}-config"),
        (0, "rx", first + 1, f"virtio{virtio}-input.0"),
        (0, "tx", first + 2, f"virtio{virtio}-output.0"),
    ]
    assert all(len(row.cpus) == 1 for row in rows)


def test_the_queue_of_the_incident_leads_to_its_core():
    rows = Queues(tree("ena")).collect()
    assert [row for row in rows if row.queue == 5] == [
        NicQueue("eth0", 5, "rxtx", 70, "eth0-Tx-Rx-5", (7,))
    ]
    assert "nvme0q1" not in {row.irq_name for row in rows}


def test_mlx5_is_read_without_effective_affinities_and_unused_vectors_are_left_out():
    rows = Queues(tree("mlx5")).collect()
    assert {row.irq: (row.queue, row.cpus) for row in rows} == {
        120: (None, (0, 1, 2, 3)),
        121: (0, (0,)),
        122: (1, (1,)),
        123: (2, (2,)),
        124: (3, (3,)),
    }


def test_no_physical_interface_is_absent():
    with pytest.raises(SourceAbsent, match="no physical interface"):
        Queues(tree("no-nic")).collect()


def test_a_bridges_interrupts_are_not_its_devices(tmp_path: Path):
    """A PCI device without MSI sits below a port that has some: those are not the NIC's."""
    port = tmp_path / "sys/devices/pci0000:00/0000:00:01.0"
    nic = port / "0000:01:00.0/net/eth0"
    nic.mkdir(parents=True)
    (port / "msi_irqs").mkdir()
    (port / "msi_irqs/24").write_text("msi\n")
    (nic / "device").symlink_to("../../../0000:01:00.0")
    (port / "0000:01:00.0/uevent").write_text("DRIVER=e1000\nMODALIAS=pci:v00008086\n")
    (tmp_path / "sys/class/net").mkdir(parents=True)
    (tmp_path / "sys/class/net/eth0").symlink_to(
        "../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/net/eth0"
    )
    text = (
        "           CPU0\n"
        " 11:          5   IO-APIC  11-fasteoi   eth0\n"
        " 24:          1   PCI-MSI 1-edge      PCIe PME\n"
    )
    host = plant(tmp_path, {"/proc/interrupts": text})
    with pytest.raises(SourceAbsent):
        Queues(host).collect()
    (port / "0000:01:00.0/irq").write_text("11\n")
    plant(tmp_path, {"/proc/irq/11/smp_affinity_list": "0\n"})
    assert [(row.irq, row.cpus) for row in Queues(host).collect()] == [(11, (0,))]


def test_this_machines_queues_have_cores_it_has():
    import os

    host = open_host()
    if not physical(host):
        pytest.skip("no physical interface on this machine")
    rows = Queues(host).collect()
    served = {cpu for row in rows if row.queue is not None for cpu in row.cpus}
    assert served <= set(range(os.cpu_count() or 1))


@given(st.text(max_size=60), st.sampled_from(["", "virtio0-input.", "eth0-Tx-Rx-", "gve-ntfy-blk"]))
def test_junk_names_no_queue_or_a_small_one(junk: str, start: str):
    queue, direction = queue_of(start + junk, gve_blocks=4)
    assert queue is None or queue < 100_000
    assert direction in ("rx", "tx", "rxtx")
