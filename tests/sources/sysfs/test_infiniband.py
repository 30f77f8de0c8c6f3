"""Ports of the fabric: which counters, through a root and by a child, and a card that hangs."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceTimeout
from sexton.host.host import Host
from sexton.host.reader import LiveFiles
from sexton.model.rows.hardware import FabricCounter, FabricPort
from sexton.sources.sysfs import infiniband
from sexton.sources.sysfs.infiniband import MOST, PATH, Ports, parse
from tests.support.trees import plant

MLX = {
    "mlx5_0/ports/1/state": "4: ACTIVE\n",
    "mlx5_0/ports/1/counters/link_downed": "2\n",
    "mlx5_0/ports/1/counters/symbol_error": "N/A (no PMA)\n",
    "mlx5_0/ports/1/counters/port_xmit_data": "991\n",
    "rdmap0s31/ports/1/state": "4: ACTIVE\n",
    "rdmap0s31/ports/1/hw_counters/rx_drops": "12\n",
    "rdmap0s31/ports/1/hw_counters/lifespan": "10\n",
}
ROWS = [
    FabricPort("mlx5_0", 1, "ACTIVE"),
    FabricPort("rdmap0s31", 1, "ACTIVE"),
    FabricCounter("mlx5_0", 1, "link_downed", 2),
    FabricCounter("rdmap0s31", 1, "rx_drops", 12),
]


def below(place: str) -> dict[str, str]:
    return {f"{place}/{path}": content for path, content in MLX.items()}


def test_errors_are_read_and_traffic_is_not(tmp_path):
    assert list(Ports(plant(tmp_path, below(PATH))).collect()) == ROWS


def test_on_the_node_a_child_reads_them(tmp_path, monkeypatch):
    plant(tmp_path, below(""))
    monkeypatch.setattr(infiniband, "PATH", str(tmp_path))
    assert list(Ports(Host(LiveFiles(), live=True)).collect()) == ROWS


def test_a_card_that_hangs_is_not_read_again(tmp_path, monkeypatch):
    """Its firmware does not answer: a FIFO that nobody writes to."""
    plant(tmp_path, {"mlx5_0/ports/1/state": "4: ACTIVE\n", "mlx5_0/ports/1/counters/x": ""})
    os.mkfifo(tmp_path / "mlx5_0/ports/1/counters/link_downed")
    monkeypatch.setattr(infiniband, "PATH", str(tmp_path))
    monkeypatch.setattr(infiniband, "_DEADLINE_S", 0.1)
    source = Ports(Host(LiveFiles(), live=True))
    with pytest.raises(SourceTimeout, match="did not finish"):
        list(source.collect())
    with pytest.raises(SourceTimeout, match="not read again"):
        list(source.collect())


def test_a_node_without_a_fabric_is_absent(tmp_path):
    with pytest.raises(SourceAbsent):
        list(Ports(plant(tmp_path, {"/sys/class/net/x": ""})).collect())


def test_it_is_bounded(tmp_path):
    files = {f"{PATH}/mlx5_{card}/ports/1/state": "1: DOWN\n" for card in range(MOST + 5)}
    assert len(list(Ports(plant(tmp_path, files)).collect())) == MOST


@given(st.text())
def test_junk_is_no_number(junk):
    rows = parse({"a/ports/1/state": junk, "a/ports/1/counters/link_downed": junk})
    assert len(rows) in (1, 2)
