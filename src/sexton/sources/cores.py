"""Which cores serve no NIC interrupt: the only ones on which a costly read may run.

A read that walks inside the kernel cannot be interrupted, so not even a deadline protects the core
it runs on. It must never be the core that the NIC's watchdog waits for. So such reads are made by
a child process that is pinned to the other cores.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceDenied
from sexton.host.host import Host
from sexton.host.runner import run
from sexton.sources.procfs.irq_affinity import irq_cpus


class Spared(NamedTuple):
    """The cores to run on (`None`: any), and a note for the report."""

    cpus: frozenset[int] | None
    note: str


def off_the_nic(host: Host) -> Spared:
    """Where a child may run; looked up once per host, since there may be hundreds of devices."""
    known: Spared | None = host.memo.get("off the nic")
    if known is None:
        known = host.memo["off the nic"] = _spare(nic_cores(host))
    return known


def nic_cores(host: Host) -> frozenset[int]:
    """The cores that the network devices' own interrupts go to."""
    cores: set[int] = set()
    for device in _names(host, "/sys/class/net"):
        # virtio's queues belong to the PCI device above the virtio one
        for irqs in (f"{device}/device/msi_irqs", f"{device}/device/../msi_irqs"):
            for irq in _names(host, f"/sys/class/net/{irqs}"):
                cores.update(irq_cpus(host.files, irq))
    return frozenset(cores)


def _names(host: Host, path: str) -> list[str]:
    try:
        return host.files.names(path)
    except (SourceAbsent, SourceDenied):
        return []


def run_child(host: Host, path: str, deadline_s: float, *script: str) -> bytes:
    """The output of a Python script and its arguments, run off the NIC's cores to read `path`."""
    argv = (sys.executable, "-I", "-S", "-c", *script)
    ended = run(argv, deadline_s, cpus=off_the_nic(host).cpus)
    if ended.status != 0:
        last = ended.errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        kind = SourceDenied if "PermissionError" in last else SourceAbsent
        raise kind(path, last or f"the reader exited with {ended.status}")
    return ended.output


def _spare(busy: frozenset[int]) -> Spared:
    allowed = frozenset(os.sched_getaffinity(0))
    if not busy:
        return Spared(None, "(no NIC interrupts found, so on any core)")
    free = allowed - busy
    if not free:
        return Spared(None, "(every core serves the NIC, so on any core)")
    return Spared(free, "on a core that does not serve the NIC")
