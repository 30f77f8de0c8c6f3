"""`/proc/net/snmp` and `/proc/net/netstat`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.host import open_host
from sexton.sources.procfs.snmp import Snmp, parse, parse_tables
from tests.support.fixtures import kernel_text, kernels
from tests.support.trees import plant

SNMP = "Tcp: MaxConn AttemptFails EstabResets InSegs OutSegs RetransSegs\nTcp: -1 3 4 500 600 7\n"
NETSTAT = (
    "TcpExt: ListenDrops TCPLostRetransmit TCPTimeouts TCPAbortOnTimeout\nTcpExt: 11 12 13 14\n"
)


@pytest.mark.parametrize("path", kernels("procfs.snmp"), ids=lambda path: path.stem)
def test_every_kernel_has_all_nine(path):
    (row,) = parse(path.read_text())
    values = (row.timeouts, row.aborts_on_timeout, row.lost_retransmits, row.listen_drops)
    assert None not in values


def test_columns_are_found_by_name():
    (row,) = parse(SNMP + NETSTAT)
    assert (row.in_segments, row.out_segments, row.retransmitted_segments) == (500, 600, 7)
    assert (row.established_resets, row.attempt_fails) == (4, 3)
    assert (row.timeouts, row.aborts_on_timeout) == (13, 14)
    assert (row.lost_retransmits, row.listen_drops) == (12, 11)


def test_there_were_two_kernels_to_read():
    assert len(kernels("procfs.snmp")) >= 2


def test_through_a_root_it_is_inits_network_and_not_the_link_to_ours(tmp_path):
    host = plant(tmp_path, {"/proc/1/net/snmp": SNMP, "/proc/1/net/netstat": NETSTAT})
    (tmp_path / "proc/net").symlink_to("self/net")
    (row,) = Snmp(host).collect()
    assert row.listen_drops == 11


def test_a_snapshot_may_hold_proc_net_as_a_plain_directory(tmp_path):
    (row,) = Snmp(plant(tmp_path, {"/proc/net/snmp": SNMP})).collect()
    assert row.in_segments == 500


def test_without_netstat_its_columns_are_none(tmp_path):
    (row,) = Snmp(plant(tmp_path, {"/proc/1/net/snmp": SNMP})).collect()
    assert row.timeouts is None
    assert row.listen_drops is None


def test_without_snmp_it_is_absent(tmp_path):
    with pytest.raises(SourceAbsent):
        list(Snmp(open_host(str(tmp_path))).collect())


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Tcp: InSegs OutSegs\nTcp: 1\n", 2),
        ("Tcp: InSegs OutSegs\nTcp: 1 x\n", 2),
        ("Tcp: InSegs OutSegs\nTcp: 1 2\n", 0),
        ("Udp: InDatagrams\nUdp: 1\n", 0),
    ],
)
def test_broken_counters_are_malformed(text, line):
    with pytest.raises(SourceMalformed) as caught:
        list(parse(text))
    assert caught.value.line == line


def test_this_machine_counts_segments():
    (row,) = Snmp(open_host()).collect()
    assert row.in_segments >= 0
    assert row.timeouts is not None


@given(cut=st.integers(0, 4000), junk=st.text(max_size=40))
def test_junk_is_tables_or_malformed(cut, junk):
    good = kernel_text("procfs.snmp", "6.1")
    try:
        parse_tables(good[:cut] + junk + good[cut + 7 :], ("Tcp", "TcpExt"))
        list(parse(good[:cut] + junk))
    except SourceMalformed:
        pass
