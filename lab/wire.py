"""A wire of our own: a veth pair, one end here and the other in a network namespace of ours.

Packets of a scene go over it and nowhere else. The end that is here belongs to the node, so that
the node's own TCP, softirq and interface counters tell of them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from lab.stage import CannotPlay

_numbers = count(1)


def one_core(core: int) -> str:
    """The kernel's mask of one core: words of 32 bits, the highest first.

    >>> one_core(1), one_core(33)
    ('00000002', '00000002,00000000')
    """
    return ",".join([f"{1 << core % 32:08x}", *["00000000"] * (core // 32)])


class Wire:
    """`here` is the address of the node's end, `there` of the end in `namespace`."""

    def __init__(self, number: int) -> None:
        self.namespace = f"sexton-lab-{os.getpid()}-{number}"
        self.device = f"lab{os.getpid()}h{number}"
        self.peer = f"lab{os.getpid()}p{number}"
        # 198.18.0.0/15 is for tests of networks (RFC 2544); nobody routes it.
        net = f"198.18.{os.getpid() % 250}"
        self.net = f"{net}.{4 * number}/30"
        self.here, self.there = f"{net}.{4 * number + 1}", f"{net}.{4 * number + 2}"
        #: Both ends', for who wants to be heard by every socket.
        self.everybody = f"{net}.{4 * number + 3}"

    def make(self) -> None:
        """The namespace, the pair, the addresses."""
        _ip("netns", "add", self.namespace)
        _ip("link", "add", self.device, "type", "veth", "peer", "name", self.peer)
        _ip("link", "set", self.peer, "netns", self.namespace)
        _ip("addr", "add", f"{self.here}/30", "dev", self.device)
        _ip("link", "set", self.device, "up")
        # A route instead of a subnet: what goes to everybody must not come back to its sender.
        _ip("-n", self.namespace, "addr", "add", f"{self.there}/32", "dev", self.peer)
        self.mend()

    def serve_on(self, core: int) -> None:
        """Have the node's end received on one core (RPS)."""
        mask = Path(f"/sys/class/net/{self.device}/queues/rx-0/rps_cpus")
        mask.write_text(one_core(core))

    def cut(self) -> None:
        """The other end goes down: no carrier, and every packet is lost."""
        _ip("-n", self.namespace, "link", "set", self.peer, "down")

    def mend(self) -> None:
        """The other end comes up, with the routes that went when it was down."""
        inside = ("-n", self.namespace)
        _ip(*inside, "link", "set", self.peer, "up")
        _ip(*inside, "route", "replace", self.net, "dev", self.peer)
        _ip(*inside, "neigh", "replace", self.everybody, "lladdr", "ff:ff:ff:ff:ff:ff",
            "dev", self.peer)  # fmt: skip

    def remove(self) -> None:
        """Both ends go with either."""
        for argv in (("link", "del", self.device), ("netns", "del", self.namespace)):
            subprocess.run(["ip", *argv], check=False, capture_output=True)


@contextlib.contextmanager
def wire() -> Iterator[Wire]:
    """A wire, taken away at the end."""
    if shutil.which("ip") is None:
        raise CannotPlay("no `ip` here: apt-get install iproute2")
    made = Wire(next(_numbers))
    try:
        try:
            made.make()
        except subprocess.CalledProcessError as error:
            words = error.stderr.decode(errors="replace").strip()
            raise CannotPlay(f"no veth pair in a namespace can be made here: {words}") from None
        yield made
    finally:
        made.remove()


def _ip(*argv: str) -> None:
    subprocess.run(["ip", *argv], check=True, capture_output=True)
