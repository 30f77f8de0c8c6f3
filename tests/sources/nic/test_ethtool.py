"""`ethtool -S`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent
from sexton.host.host import open_host
from sexton.sources.nic import ethtool
from sexton.sources.nic.devices import physical
from sexton.sources.nic.ethtool import Counters, parse_text
from tests.sources.nic.trees import tree
from tests.support.tools import need
from tests.support.trees import plant


@pytest.mark.parametrize("name", ["virtio-6.1", "virtio-5.10"])
def test_an_archives_text_is_read(name: str):
    rows = {row.counter: row.value for row in Counters(tree(name)).collect()}
    assert {"rx_queue_0_packets", "tx_queue_0_packets"} <= set(rows)


def test_the_counters_of_the_incident_are_read():
    rows = {row.counter: row.value for row in Counters(tree("ena")).collect()}
    assert rows["total_resets"] == rows["suspected_poll_starvation"] == 3
    assert rows["wd_expired"] == 0


def test_names_may_hold_colons_and_titles_have_no_value():
    text = "NIC statistics:\n   [rx]: \n   a: b: 5\n   hex: 0x12\n   big: 99999999999999999999999\n"
    assert list(parse_text(text)) == [("a: b", 5)]


def test_counters_are_bounded_and_the_first_ones_stay(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ethtool, "MOST_COUNTERS", 2)
    rows = Counters(tree("ena")).collect()
    assert [row.counter for row in rows] == ["total_resets", "reset_fail"]


def test_a_node_without_a_physical_interface_has_no_counters():
    with pytest.raises(SourceAbsent, match="no physical interface"):
        Counters(tree("no-nic")).collect()


def test_counters_that_were_not_collected_are_absent():
    with pytest.raises(SourceAbsent):
        Counters(tree("mlx5")).collect()


def test_a_repeated_name_is_kept_once(tmp_path: Path):
    uevent = "DRIVER=ena\nMODALIAS=pci:v0\n"
    host = plant(
        tmp_path,
        {
            "/sys/class/net/eth0/device/uevent": uevent,
            "/commands/ethtool_S_eth0": "NIC statistics:\n a: 1\n a: 2\n",
        },
    )
    assert [row.value for row in Counters(host).collect()] == [1]


@given(st.text(max_size=200))
def test_junk_is_counters_or_nothing(junk: str):
    assert all(value >= 0 for _, value in parse_text(junk))


@pytest.mark.oracle
def test_live_counters_agree_with_ethtool():
    """Counters move while one looks, so each of ours must lie between ethtool's before and after;
    where that is not one number, it is at least the same set of names."""
    program = need("ethtool", package="ethtool")
    host = open_host()
    nics = physical(host)
    if not nics:
        pytest.skip("no physical interface on this machine")

    def counters_of(nic: str) -> dict[str, int]:
        run = subprocess.run([program, "-S", nic], capture_output=True)
        return dict(parse_text(os.fsdecode(run.stdout)))

    before = {nic: counters_of(nic) for nic in nics}
    if not any(before.values()):
        pytest.skip("its driver has no counters")
    reading = Counters(host)
    try:
        rows = list(reading.collect())
        again = list(reading.collect())
    finally:
        reading.close()
    after = {nic: counters_of(nic) for nic in nics}
    assert {(row.nic, row.counter) for row in rows} == {
        (nic, name) for nic in nics for name in before[nic]
    }
    for row in rows:
        assert before[row.nic][row.counter] <= row.value <= after[row.nic][row.counter]
    assert len(again) == len(rows)


def test_a_number_of_thousands_of_digits_is_no_counter():
    assert list(parse_text(f"a: {'9' * 5000}\nb: 7\n")) == [("b", 7)]
