"""The peers: recorders that sample once a second, with a reason if one cannot run.

They record different things, as the table says: `sadc` neither processes nor cgroups, `atop` every
process, `node_exporter` its collectors' totals, `below` processes and v2's cgroups.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.programs import find, traced
from bench.recorder.account import Program


@dataclass(frozen=True)
class RunSpec:
    """A run's directory and duration."""

    directory: Path
    seconds: int


@dataclass
class Scraper:
    """A client that fetches `/metrics` once a second, outside the measured cgroup."""

    port: int
    fetched_bytes: int = 0
    failures: list[str] = field(default_factory=list)

    def __call__(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/metrics")
            self.fetched_bytes += len(connection.getresponse().read())
        except OSError as error:
            self.failures.append(str(error))
        finally:
            connection.close()


@dataclass(frozen=True)
class Run:
    """A program ready to start, and where its output is counted."""

    program: Program
    kept: Path | None = None
    scraper: Scraper | None = None


@dataclass(frozen=True)
class Peer:
    """A recorder: its name, and what it watches."""

    name: str
    watches: str
    prepare: Callable[[RunSpec], Run | str]


def sadc(spec: RunSpec) -> Run | str:
    found = find("sadc")
    if found is None:
        return "not installed: apt-get install sysstat"
    out = spec.directory / "sadc"
    return Run(
        _program("sadc", (found, "-S", "ALL", "1", str(spec.seconds + 1), str(out)), spec), out
    )


def atop(spec: RunSpec) -> Run | str:
    found = find("atop")
    if found is None:
        return "not installed: scripts/system-packages unpacks it"
    out = spec.directory / "atop"
    return Run(_program("atop", (found, "-w", str(out), "1", str(spec.seconds)), spec), out)


def node_exporter(*collectors: str) -> Callable[[RunSpec], Run | str]:
    def prepare(spec: RunSpec) -> Run | str:
        found = find("prometheus-node-exporter") or find("node_exporter")
        if found is None:
            return "not installed: scripts/system-packages unpacks it"
        port = free_port()
        listen = f"--web.listen-address=127.0.0.1:{port}"
        argv = (found, listen, *(f"--collector.{collector}" for collector in collectors))
        scraper = Scraper(port)
        program = Program("node_exporter", argv, spec.seconds, ends_itself=False, tick=scraper)
        return Run(program, None, scraper)

    return prepare


def below(spec: RunSpec) -> Run | str:
    found = find("below")
    if found is None:
        return "not installed: no Debian 12 package; cargo install below, with clang"
    config = spec.directory / "below.conf"
    store = spec.directory / "below-store"
    logs = spec.directory / "below-log"
    config.write_text(
        f'log_dir = "{logs}"\nstore_dir = "{store}"\ncgroup_root = "{unified_root()}"\n'
    )
    logs.mkdir()
    # Its BPF program that counts exits needs the tracepoint ids.
    argv = traced((found, "--config", str(config), "record", "--interval-s", "1"))
    return Run(Program("below", argv, spec.seconds, ends_itself=False), store)


def unified_root() -> Path:
    """The mount point of the v2 hierarchy, beside v1 or alone."""
    beside = Path("/sys/fs/cgroup/unified")
    return beside if beside.is_dir() else Path("/sys/fs/cgroup")


PEERS = (
    Peer("sadc -S ALL", "no processes, no cgroups", sadc),
    Peer("atop -w", "every process", atop),
    Peer("node_exporter", "as installed; scraped", node_exporter()),
    Peer(
        "node_exporter +3",
        "with processes, interrupts, ethtool; scraped",
        node_exporter("processes", "interrupts", "ethtool"),
    ),
    Peer("below record", "every process, v2's cgroups", below),
)


def _program(name: str, argv: tuple[str, ...], spec: RunSpec) -> Program:
    return Program(name, argv, spec.seconds)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
