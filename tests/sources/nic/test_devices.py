"""`/sys/class/net`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent
from sexton.host.host import open_host
from sexton.model.rows.net import Nic
from sexton.sources.nic.devices import Devices, physical, uevent
from tests.sources.nic.trees import tree
from tests.support.tools import need
from tests.support.trees import plant


@pytest.mark.parametrize(
    ("name", "nic"),
    [
        ("virtio-6.18", Nic("eth0", True, "virtio_net", None, "virtio2", "up")),
        ("virtio-6.1", Nic("eth0", True, "virtio_net", "1.0.0", "virtio0", "up")),
        ("virtio-5.10", Nic("eth0", True, "virtio_net", "1.0.0", "virtio0", "up")),
        ("ena", Nic("eth0", True, "ena", "2.11.0g", "0000:20:03.0", "up")),
        ("mlx5", Nic("enp59s0f0", True, "mlx5_core", "5.8-3.0.7", "0000:3b:00.0", "up")),
    ],
)
def test_the_physical_interface_is_known_with_its_driver(name: str, nic: Nic):
    rows = Devices(tree(name)).collect()
    assert [row for row in rows if row.physical] == [nic]


def test_software_interfaces_are_listed_as_such():
    rows = {row.name: row for row in Devices(tree("ena")).collect()}
    assert [name for name, row in rows.items() if not row.physical] == [
        "docker0",
        "lo",
        "veth12ab34",
    ]
    assert rows["docker0"].driver is None


def test_no_physical_interface_is_rows_and_none_physical():
    rows = Devices(tree("no-nic")).collect()
    assert rows
    assert not any(row.physical for row in rows)
    assert physical(tree("no-nic")) == []


def test_a_copy_without_links_is_read_through_uevent(tmp_path: Path):
    device = "/sys/class/net/eth0/device"
    uevent = "DRIVER=ena\nPCI_SLOT_NAME=0000:20:03.0\nMODALIAS=pci:v00001D0F\n"
    host = plant(tmp_path, {f"{device}/uevent": uevent})
    assert Devices(host).collect() == [Nic("eth0", True, "ena", None, "0000:20:03.0", None)]


def test_a_simulated_device_is_not_physical(tmp_path: Path):
    device = "/sys/class/net/eth0/device"
    host = plant(tmp_path, {f"{device}/uevent": "DRIVER=netdevsim\nMODALIAS=netdevsim:\n"})
    assert [row.physical for row in Devices(host).collect()] == [False]


def test_the_file_among_the_interfaces_is_none(tmp_path: Path):
    host = plant(
        tmp_path, {"/sys/class/net/bonding_masters": "", "/sys/class/net/lo/operstate": "unknown\n"}
    )
    assert [row.name for row in Devices(host).collect()] == ["lo"]


def test_hostile_names_survive(tmp_path: Path):
    host = plant(tmp_path, {"/sys/class/net/\x1b[2J\udcff/operstate": "up\n"})
    assert [row.name for row in Devices(host).collect()] == ["\x1b[2J\udcff"]


def test_a_tree_without_sysfs_is_absent(tmp_path: Path):
    with pytest.raises(SourceAbsent):
        Devices(open_host(str(tmp_path))).collect()


def test_this_machine_has_a_loopback_that_is_software():
    rows = {row.name: row for row in Devices(open_host()).collect()}
    assert rows["lo"].physical is False


@pytest.mark.oracle
def test_driver_and_version_agree_with_ethtool():
    import subprocess

    ethtool = need("ethtool", package="ethtool")
    rows = [row for row in Devices(open_host()).collect() if row.physical]
    if not rows:
        pytest.skip("no physical interface on this machine")
    for row in rows:
        output = subprocess.run([ethtool, "-i", row.name], capture_output=True, text=True).stdout
        lines = dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)
        assert row.driver == lines["driver"]
        assert row.driver_version == lines.get("version")


@given(st.text(max_size=80))
def test_junk_in_a_uevent_is_pairs_or_nothing(junk: str):
    document = uevent(f"DRIVER=ena\n{junk}")
    assert document["DRIVER"] == "ena" or "DRIVER=" in junk
    assert not any("=" in key or "\n" in key + value for key, value in document.items())
