"""Firewall rules and tracked connections of a namespace of our own, by netlink.

Neither `nft` nor `conntrack` is on every machine, and what is needed of them is little. Each
function speaks about the network namespace of the process that calls it: run this module inside
the namespace (``ip netns exec NAME python -m tests.support.netfilter lose 10``).
"""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path

import numpy as np

_NETFILTER = 12
_REQUEST, _ACK, _CREATE = 0x1, 0x4, 0x400
_NESTED = 0x8000
_CONNTRACK, _TABLES = 1, 10
_IPV4 = 2
#: Hooks, and where among them the rule stands.
_INPUT, _OUTPUT = 1, 3
#: Seen in both directions and not to be thrown out early.
_ASSURED = 0x2 | 0x4 | 0x8
MAXIMUM = Path("/proc/sys/net/netfilter/nf_conntrack_max")
COUNT = Path("/proc/sys/net/netfilter/nf_conntrack_count")


def _attribute(kind: int, *values: bytes | int | str) -> bytes:
    """One attribute: a number is four bytes in network order, several values are nested."""
    body = b"".join(
        struct.pack("!I", value)
        if isinstance(value, int)
        else value.encode() + b"\0"
        if isinstance(value, str)
        else value
        for value in values
    )
    return struct.pack("=HH", 4 + len(body), kind) + body + b"\0" * (-len(body) % 4)


def _nested(kind: int, *inner: bytes) -> bytes:
    return _attribute(kind | _NESTED, *inner)


def _message(kind: int, flags: int, family: int, resource: int, body: bytes) -> bytes:
    head = struct.pack("=IHHII", 20 + len(body), kind, _REQUEST | flags, 1, 0)
    return head + struct.pack("!BBH", family, 0, resource) + body


def _expression(name: str, *inner: bytes) -> bytes:
    return _nested(1, _attribute(1, name), _nested(2, *inner))


def _rule(hook: int, *expressions: bytes) -> None:
    """A table and a chain of our own with this one rule."""
    name = f"sexton{hook}"
    base = _TABLES << 8
    chain = _nested(4, _attribute(1, hook), _attribute(2, 0)) + _attribute(7, "filter")
    parts = [
        _message(0x10, 0, 0, _TABLES, b""),
        _message(base | 0, _ACK | _CREATE, _IPV4, 0, _attribute(1, name)),
        _message(
            base | 3, _ACK | _CREATE, _IPV4, 0, _attribute(1, name) + _attribute(3, name) + chain
        ),
        _message(
            base | 6,
            _ACK | _CREATE,
            _IPV4,
            0,
            _attribute(1, name) + _attribute(2, name) + _nested(4, *expressions),
        ),
        _message(0x11, 0, 0, _TABLES, b""),
    ]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as link:
        link.bind((0, 0))
        link.send(b"".join(parts))
        for _ in range(3):
            answer = link.recv(1 << 16)
            (error,) = struct.unpack_from("=i", answer, 16)
            if error:
                raise OSError(-error, f"the kernel refused a rule on hook {hook}")


def lose(one_in: int) -> None:
    """Throw away one of so many packets that come in, by chance."""
    drop = _nested(2, _nested(2, _attribute(1, 0)))
    _rule(
        _INPUT,
        _expression("numgen", _attribute(1, 1), _attribute(2, one_in), _attribute(3, 1)),
        _expression(
            "cmp", _attribute(1, 1), _attribute(2, 0), _nested(3, _attribute(1, b"\0" * 4))
        ),
        _expression("immediate", _attribute(1, 0), drop),
    )


def track() -> None:
    """Ask for a connection's state, so that the kernel tracks what goes out."""
    _rule(_OUTPUT, _expression("ct", _attribute(1, 1), _attribute(2, 0)))


def fill(leave: int) -> int:
    """Enter connections as if answered until there is room for `leave` more; how many there are."""
    wanted = int(MAXIMUM.read_text()) - leave - int(COUNT.read_text())
    template = _connection(0)
    table = np.tile(np.frombuffer(template, np.uint8), (wanted, 1))
    number = np.arange(wanted, dtype=np.uint32)
    port = (number % 60_000 + 1).astype(">u2").view(np.uint8).reshape(-1, 2)
    host = (number // 60_000 + 1).astype(np.uint8)
    marked = _connection(0xFFFF, 0xEE)
    for place in _places(template, marked, 0xFF, 2):
        table[:, place : place + 2] = port
    for place in _places(template, marked, 0xEE, 1):
        table[:, place] = host
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER) as link:
        link.bind((0, 0))
        for start in range(0, wanted, 1000):
            link.send(table[start : start + 1000].tobytes())
    return int(COUNT.read_text())


def _places(template: bytes, marked: bytes, value: int, width: int) -> list[int]:
    """Where a message differs by the value: the fields that are filled in for each."""
    found = [
        at
        for at, (one, other) in enumerate(zip(template, marked, strict=True))
        if one != other and other == value
    ]
    return found[::width]


def _connection(port: int, host: int = 0) -> bytes:
    here, there = bytes((10, 0, 0, 1)), bytes((10, 1, 1, host))
    body = _tuple(1, (here, 53), (there, port)) + _tuple(2, (there, port), (here, 53))
    body += _attribute(3, _ASSURED) + _attribute(7, 600)
    return _message(_CONNTRACK << 8, _CREATE, _IPV4, 0, body)


def _tuple(kind: int, source: tuple[bytes, int], target: tuple[bytes, int]) -> bytes:
    ports = _attribute(2, struct.pack("!H", source[1])) + _attribute(
        3, struct.pack("!H", target[1])
    )
    return _nested(
        kind,
        _nested(1, _attribute(1, source[0]), _attribute(2, target[0])),
        _nested(2, _attribute(1, bytes((17,))), ports),
    )


if __name__ == "__main__":
    if sys.argv[1] == "lose":
        lose(int(sys.argv[2]))
    elif sys.argv[1] == "track":
        track()
    else:
        print(fill(int(sys.argv[2])))
