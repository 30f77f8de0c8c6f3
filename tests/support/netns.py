"""Network namespaces of our own with a cable between them: a network to break in peace."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.support.cli import ENVIRONMENT


class Place(NamedTuple):
    """One end: its namespace, its address and its end of the cable."""

    name: str
    address: str
    device: str

    def run(self, *argv: str, seconds: float = 60) -> str:
        """A command inside, to its end."""
        ended = subprocess.run(
            [*self.enter, *argv], capture_output=True, text=True, timeout=seconds, check=False
        )
        assert ended.returncode == 0, (argv, ended.stderr)
        return ended.stdout

    def set(self, name: str, value: int) -> None:
        """A setting under `/proc/sys/net`."""
        self.run("sh", "-c", f"echo {value} > /proc/sys/net/{name}")

    @contextmanager
    def doing(self, script: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A Python script inside, ended with the block."""
        argv = [*self.enter, sys.executable, "-c", script, *words]
        child = subprocess.Popen(argv, stdout=subprocess.PIPE, env=ENVIRONMENT)
        try:
            yield child
        finally:
            child.kill()
            child.communicate()

    def diagnosed(self, seconds: int) -> subprocess.CompletedProcess[bytes]:
        """`sexton diagnose --json` inside. Only the network is entered: `/sys` stays as it is."""
        argv = [*self.enter, sys.executable, "-m", "sexton"]
        return subprocess.run(
            [*argv, "diagnose", "--json", "--seconds", str(seconds)],
            capture_output=True,
            env=ENVIRONMENT,
            timeout=seconds + 120,
            check=False,
        )

    def netfilter(self, *words: str) -> str:
        return self.run(sys.executable, "-m", "tests.support.netfilter", *words)

    @property
    def enter(self) -> tuple[str, ...]:
        return ("nsenter", f"--net=/run/netns/{self.name}")


@contextmanager
def two_places() -> Iterator[tuple[Place, Place]]:
    """Two namespaces, cabled; gone at the end with all that is in them."""
    if shutil.which("ip") is None or shutil.which("nsenter") is None:
        pytest.skip("ip and nsenter are needed to make namespaces")
    stem = f"sexton-test-{os.getpid()}"
    left = Place(f"{stem}-l", "10.213.7.1", "cable")
    right = Place(f"{stem}-r", "10.213.7.2", "cable")
    made: list[Place] = []
    try:
        for place in (left, right):
            done = subprocess.run(
                ["ip", "netns", "add", place.name], capture_output=True, text=True, check=False
            )
            if done.returncode:
                pytest.skip(f"no network namespace can be made here: {done.stderr.strip()}")
            made.append(place)
        left.run("ip", "link", "add", "cable", "type", "veth", "peer", "cable", "netns", right.name)
        for place in (left, right):
            place.run("ip", "address", "add", f"{place.address}/24", "dev", place.device)
            place.run("ip", "link", "set", place.device, "up")
            place.run("ip", "link", "set", "lo", "up")
        yield left, right
    finally:
        for place in made:
            subprocess.run(["ip", "netns", "delete", place.name], check=True)
