r"""Sockets and the processes that own them: sock_diag(7), over netlink, as `ss` does.

The structures are those of the kernel's include/uapi/linux/{inet_diag,unix_diag}.h. Sockets carry
an inode, and the descriptors of processes (``/proc/PID/fd/N`` → ``socket:[INODE]``) give the owner.
Only our own network namespace is visible: a pod's sockets are in another, while its connections
*to* the node's daemons appear here with the pod's address.

Quirks: a socket that no process holds (TIME_WAIT, or not yet accepted) has inode 0. UDP has no
connections: the senders to a bound UDP socket are unknown. UNIX sockets have their peer's inode
only with UNIX_DIAG (a module on some kernels); a connection not yet accepted has no peer.

>>> raw = struct.pack("=BBBB", 2, 1, 0, 0) + struct.pack("!HH", 9100, 40000)
>>> raw += socket.inet_aton("10.0.0.5") + bytes(12) + socket.inet_aton("10.0.0.9") + bytes(12)
>>> raw += bytes(12) + struct.pack("=5I", 0, 0, 0, 0, 77)
>>> parse_inet(raw, "tcp")[2:]
('10.0.0.5', 9100, '10.0.0.9', 40000, 77)
"""

from __future__ import annotations

import errno
import os
import re
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceDenied, SourceError, SourceMalformed, SourceTimeout
from sexton.host.host import Host
from sexton.host.reader import failure

PATH = "sock_diag"
ESTABLISHED, CLOSED, LISTEN = 1, 7, 10
MOST_SOCKETS = 200_000
MOST_LINKS = 300_000
_NETLINK_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST_DUMP = 0x1 | 0x300
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_RECEIVE = 1 << 18
_UNIX_NAME, _UNIX_PEER = 0, 2
_SHOW_NAME, _SHOW_PEER = 0x1, 0x4
_INET_BYTES, _UNIX_BYTES = 72, 16
_LINK = re.compile(r"socket:\[(\d{1,12})\]", re.ASCII)


class InetSocket(NamedTuple):
    """A TCP or UDP socket; `inode` 0 where no process holds it."""

    protocol: str
    state: int
    local: str
    port: int
    remote: str
    remote_port: int
    inode: int


class UnixSocket(NamedTuple):
    """A UNIX socket; `peer` is the other end's inode, `None` where it has none."""

    state: int
    inode: int
    peer: int | None
    name: str


class Sockets(NamedTuple):
    """Every socket of this network namespace, and the process that holds each inode.

    `inodes_seen` is false if some processes' descriptors could not be read: then a socket without
    an owner may still have one.
    """

    inet: tuple[InetSocket, ...]
    unix: tuple[UnixSocket, ...]
    owners: dict[int, int]
    inodes_seen: bool


def read_sockets(host: Host, pids: Iterable[int], deadline_s: float = 10.0) -> Sockets:
    """Read the sockets, then look for their owners among these processes."""
    host.require_live(PATH)
    end = time.monotonic() + deadline_s
    inet: list[InetSocket] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        for protocol, name in ((socket.IPPROTO_TCP, "tcp"), (socket.IPPROTO_UDP, "udp")):
            wanted = _inet_request(family, protocol)
            inet += (parse_inet(raw, name) for raw in _dump(wanted, end))
    try:
        unix = tuple(parse_unix(raw) for raw in _dump(_unix_request(), end))
    except SourceAbsent:  # a kernel without UNIX_DIAG still has TCP
        unix = ()
    owners, seen = _owners(host, pids, end)
    return Sockets(tuple(inet), unix, owners, seen)


def parse_inet(raw: bytes, protocol: str) -> InetSocket:
    """One `struct inet_diag_msg`."""
    if len(raw) < _INET_BYTES:
        raise SourceMalformed(PATH, 0, f"a reply of {len(raw)} bytes")
    family, state = raw[0], raw[1]
    port, remote_port = struct.unpack_from("!HH", raw, 4)
    size = 4 if family == socket.AF_INET else 16
    kind = socket.AF_INET if family == socket.AF_INET else socket.AF_INET6
    local = _plain(socket.inet_ntop(kind, raw[8 : 8 + size]))
    remote = _plain(socket.inet_ntop(kind, raw[24 : 24 + size]))
    inode = struct.unpack_from("=I", raw, 68)[0]
    return InetSocket(protocol, state, local, port, remote, remote_port, inode)


def parse_unix(raw: bytes) -> UnixSocket:
    """One `struct unix_diag_msg` with its attributes."""
    if len(raw) < _UNIX_BYTES:
        raise SourceMalformed(PATH, 0, f"a reply of {len(raw)} bytes")
    state, inode = raw[2], struct.unpack_from("=I", raw, 4)[0]
    peer, name, at = None, "", _UNIX_BYTES
    while at + 4 <= len(raw):
        length, kind = struct.unpack_from("=HH", raw, at)
        value = raw[at + 4 : at + length]
        if length < 4:
            break
        if kind == _UNIX_PEER and len(value) == 4:
            peer = int(struct.unpack("=I", value)[0])
        elif kind == _UNIX_NAME:
            name = value.rstrip(b"\0").decode("utf-8", "surrogateescape").replace("\0", "@")
        at += (length + 3) & ~3
    return UnixSocket(state, inode, peer, name)


def _plain(address: str) -> str:
    """An IPv4-mapped IPv6 address as IPv4.

    >>> _plain("::ffff:10.0.0.9"), _plain("::1")
    ('10.0.0.9', '::1')
    """
    return address.removeprefix("::ffff:") if "." in address else address


def _inet_request(family: int, protocol: int) -> bytes:
    states = 1 << ESTABLISHED | 1 << LISTEN | 1 << CLOSED  # a bound UDP socket is "closed"
    return struct.pack("=BBBBI48x", family, protocol, 0, 0, states)


def _unix_request() -> bytes:
    states = 1 << ESTABLISHED | 1 << LISTEN
    show = _SHOW_NAME | _SHOW_PEER
    return struct.pack("=BBHIIIII", socket.AF_UNIX, 0, 0, states, 0, show, 0xFFFFFFFF, 0xFFFFFFFF)


def _dump(request: bytes, end: float) -> Iterator[bytes]:
    """The replies to one request, without their netlink headers."""
    message = _HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + request
    given = 0
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as netlink:
            netlink.send(message)
            while True:
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                netlink.settimeout(left)
                for kind, body in _messages(netlink.recv(_RECEIVE)):
                    if kind == _DONE:
                        return
                    if kind == _ERROR:
                        _raise_error(body)
                    given += 1
                    if given > MOST_SOCKETS:
                        raise SourceMalformed(PATH, 0, f"more than {MOST_SOCKETS:,} sockets")
                    yield body
    except TimeoutError:
        raise SourceTimeout(PATH, "no reply before the deadline") from None
    except OSError as error:
        raise failure(PATH, error) from None


def _messages(received: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(received):
        length, kind, *_ = _HEADER.unpack_from(received, at)
        if length < _HEADER.size or at + length > len(received):
            raise SourceMalformed(PATH, 0, "a message with a wrong length")
        yield kind, received[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _raise_error(body: bytes) -> None:
    code = -struct.unpack_from("=i", body)[0] if len(body) >= 4 else 0
    if code:
        if code == errno.ENOENT:  # this kernel has no such handler
            raise SourceAbsent(PATH, "not supported by this kernel")
        raise SourceDenied(PATH, os.strerror(code))


def _owners(host: Host, pids: Iterable[int], end: float) -> tuple[dict[int, int], bool]:
    owners: dict[int, int] = {}
    seen, looked = True, 0
    for pid in pids:
        if time.monotonic() > end or looked > MOST_LINKS:
            return owners, False
        try:
            numbers = host.files.names(f"/proc/{pid}/fd")
        except SourceAbsent:
            continue
        except SourceError:
            seen = False
            continue
        looked += len(numbers)
        for number in numbers:
            try:
                found = _LINK.fullmatch(host.files.link(f"/proc/{pid}/fd/{number}"))
            except SourceError:  # closed since
                continue
            if found is not None:
                owners.setdefault(int(found[1]), pid)
    return owners, seen
