"""A tree with a fake systemd in it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sexton.host.host import Host, open_host
from tests.sources.systemd.fake_bus import FakeBus

Fake = Callable[[Mapping[str, Mapping[str, Any]]], tuple[FakeBus, Host]]


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory with a short name: a socket's path has room for 107 bytes."""
    directory = Path(tempfile.mkdtemp(prefix="sx-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def fake(short_path: Path) -> Iterator[Fake]:
    """Starts a fake bus under a root and opens that root as a host."""
    buses: list[FakeBus] = []

    def start(units: Mapping[str, Mapping[str, Any]]) -> tuple[FakeBus, Host]:
        (short_path / "run/systemd/system").mkdir(parents=True)
        bus = FakeBus(short_path / "run/dbus/system_bus_socket", units)
        buses.append(bus)
        return bus, open_host(str(short_path))

    yield start
    for bus in buses:
        bus.close()
