"""A veth pair, one end on the node and the other in a network namespace.

A scene's packets go over it and nowhere else. One end belongs to the node, so the node's TCP,
softirq and interface counters show them.
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


def cpu_mask(core: int) -> str:
    """The kernel's CPU mask for one core: 32-bit words, highest first.

    >>> cpu_mask(1), cpu_mask(33)
    ('00000002', '00000002,00000000')
    """
    return ",".join([f"{1 << core % 32:08x}", *["00000000"] * (core // 32)])


class VethPair:
    """`address` belongs to the node's end, `peer_address` to the end in `namespace`."""

    def __init__(self, number: int) -> None:
        self.namespace = f"sexton-lab-{os.getpid()}-{number}"
        self.device = f"lab{os.getpid()}h{number}"
        self.peer = f"lab{os.getpid()}p{number}"
        # 198.18.0.0/15 is reserved for benchmarks (RFC 2544); nobody routes it.
        net = f"198.18.{os.getpid() % 250}"
        self.net = f"{net}.{4 * number}/30"
        self.address, self.peer_address = f"{net}.{4 * number + 1}", f"{net}.{4 * number + 2}"
        #: Reaches every socket at the other end.
        self.broadcast = f"{net}.{4 * number + 3}"

    def make(self) -> None:
        """Create the namespace, the pair and the addresses."""
        _ip("netns", "add", self.namespace)
        _ip("link", "add", self.device, "type", "veth", "peer", "name", self.peer)
        _ip("link", "set", self.peer, "netns", self.namespace)
        _ip("addr", "add", f"{self.address}/30", "dev", self.device)
        _ip("link", "set", self.device, "up")
        # A route instead of a subnet: broadcasts must not come back to their sender.
        _ip("-n", self.namespace, "addr", "add", f"{self.peer_address}/32", "dev", self.peer)
        self.restore()

    def receive_on(self, core: int) -> None:
        """Receive the node's end on one core (RPS)."""
        mask = Path(f"/sys/class/net/{self.device}/queues/rx-0/rps_cpus")
        mask.write_text(cpu_mask(core))

    def cut(self) -> None:
        """Take the other end down: no carrier, every packet is lost."""
        _ip("-n", self.namespace, "link", "set", self.peer, "down")

    def restore(self) -> None:
        """Bring the other end up and restore the routes that the kernel dropped."""
        inside = ("-n", self.namespace)
        _ip(*inside, "link", "set", self.peer, "up")
        _ip(*inside, "route", "replace", self.net, "dev", self.peer)
        _ip(*inside, "neigh", "replace", self.broadcast, "lladdr", "ff:ff:ff:ff:ff:ff",
            "dev", self.peer)  # fmt: skip

    def remove(self) -> None:
        """Deleting one end deletes both."""
        for argv in (("link", "del", self.device), ("netns", "del", self.namespace)):
            subprocess.run(["ip", *argv], check=False, capture_output=True)


@contextlib.contextmanager
def veth_pair() -> Iterator[VethPair]:
    """A veth pair, removed at the end."""
    if shutil.which("ip") is None:
        raise CannotPlay("no `ip` here: apt-get install iproute2")
    made = VethPair(next(_numbers))
    try:
        try:
            made.make()
        except subprocess.CalledProcessError as error:
            words = error.stderr.decode(errors="replace").strip()
            raise CannotPlay(f"cannot create a veth pair in a namespace: {words}") from None
        yield made
    finally:
        made.remove()


def _ip(*argv: str) -> None:
    subprocess.run(["ip", *argv], check=True, capture_output=True)
