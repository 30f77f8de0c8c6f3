"""sock_diag against sockets of our own, `ss`, and junk."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.host import Host, open_host
from sexton.host.reader import RootedFiles
from sexton.sources import sock_diag
from sexton.sources.sock_diag import ESTABLISHED, LISTEN, Sockets, parse_inet, parse_unix
from tests.support.tools import need


def ours() -> Sockets:
    return sock_diag.read_sockets(open_host(), [os.getpid()], 10.0)


def inode(own: socket.socket) -> int:
    return os.fstat(own.fileno()).st_ino


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_both_ends_of_a_connection_are_found_with_their_owner(family: int):
    address = "127.0.0.1" if family == socket.AF_INET else "::1"
    try:
        server = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip("no IPv6 here")
    with server:
        port = server.getsockname()[1]
        with socket.create_connection((address, port)) as client, server.accept()[0] as accepted:
            found = ours()
            by_inode = {inet_socket.inode: inet_socket for inet_socket in found.inet}
            listening, near, far = (by_inode[inode(item)] for item in (server, client, accepted))
            assert (listening.state, listening.port, listening.protocol) == (LISTEN, port, "tcp")
            assert near.state == far.state == ESTABLISHED
            assert (near.remote, near.remote_port) == (far.local, far.port) == (address, port)
            assert (far.remote, far.remote_port) == client.getsockname()[:2]
            assert found.owners[inode(client)] == os.getpid()
            assert found.inodes_seen


def test_an_ipv4_client_of_an_ipv6_server_is_shown_as_ipv4():
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0] as accepted:
            found = {item.inode: item for item in ours().inet}[inode(accepted)]
            assert (found.local, found.remote) == ("127.0.0.1", "127.0.0.1")


def test_a_udp_socket_is_found():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        found = {item.inode: item for item in ours().inet}[inode(bound)]
        assert (found.protocol, found.port) == ("udp", bound.getsockname()[1])


def test_unix_sockets_know_each_other(tmp_path: Path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        client.connect(path)
        with server.accept()[0] as accepted:
            found = {unix_socket.inode: unix_socket for unix_socket in ours().unix}
            if not found:
                pytest.skip("this kernel has no UNIX_DIAG")
            assert (found[inode(server)].state, found[inode(server)].name) == (LISTEN, path)
            assert found[inode(client)].peer == inode(accepted)
            assert found[inode(accepted)].peer == inode(client)
            assert found[inode(accepted)].name == path
            assert found[inode(client)].name == ""


@pytest.mark.oracle
def test_ss_knows_the_same_listeners():
    ss = need("ss", package="iproute2")

    def theirs() -> set[int]:
        output = subprocess.run([ss, "-Htln"], capture_output=True, text=True, check=True).stdout
        return {int(found) for found in re.findall(r":(\d+)\s+\S+:\*", output)}

    with socket.create_server(("127.0.0.1", 0)):
        before, after, mine = theirs(), None, set[int]()
        deadline = time.monotonic() + 60
        while before != after:  # other programs' sockets come and go: one opened or closed between
            assert time.monotonic() < deadline, "the machine's listeners never stay the same"
            before = theirs()
            mine = {item.port for item in ours().inet if item.state == LISTEN}
            after = theirs()
        assert mine == before


def test_another_machines_tree_has_no_sockets(tmp_path: Path):
    host = Host(RootedFiles(str(tmp_path)), live=False, root=str(tmp_path))
    with pytest.raises(SourceAbsent):
        sock_diag.read_sockets(host, [1])


def test_unreadable_descriptors_are_reported(monkeypatch: pytest.MonkeyPatch):
    from sexton.errors import SourceDenied

    class Shut:
        def names(self, path: str) -> list[str]:
            raise SourceDenied(path, "no")

    host = Host(Shut(), live=True)  # type: ignore[arg-type]
    assert sock_diag.read_sockets(host, [1]).inodes_seen is False


@given(st.binary(max_size=200))
def test_junk_is_refused_or_read(raw: bytes):
    for parse in (lambda: parse_inet(raw, "tcp"), lambda: parse_unix(raw)):
        try:
            parse()
        except SourceMalformed:
            assert len(raw) < 72


def test_junk_messages_end():
    with pytest.raises(SourceMalformed):
        list(sock_diag._messages(struct.pack("=IHHII", 5, 0, 0, 0, 0)))
