"""What tests on the running kernel share."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from sexton.errors import SourceAbsent
from sexton.host.host import open_host
from sexton.sources.tracefs.instance import find_tracefs


@pytest.fixture
def tracefs() -> Iterator[str]:
    """Tracefs, mounted at a place of our own where it is not mounted yet."""
    try:
        yield find_tracefs(open_host())
        return
    except SourceAbsent:
        pass
    place = tempfile.mkdtemp(prefix="sexton-test-tracefs-")
    mounted = subprocess.run(["mount", "-t", "tracefs", "nodev", place], check=False)
    if mounted.returncode:
        Path(place).rmdir()
        pytest.skip("tracefs cannot be mounted here")
    try:
        yield find_tracefs(open_host())
    finally:
        # Lazily: another sexton on the node may have found the mount and be reading it.
        subprocess.run(["umount", "-l", place], check=True)
        Path(place).rmdir()


def until(what: Callable[[], bool], most_s: float = 180.0) -> bool:
    """Wait for something the kernel does in its own time, on a machine that others keep busy."""
    end = monotonic() + most_s
    while not what():
        if monotonic() > end:
            return False
        sleep(0.02)
    return True
