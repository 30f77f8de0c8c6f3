"""What tests on the running kernel share."""

from __future__ import annotations

import contextlib
import fcntl
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
    place = Path(tempfile.gettempdir(), "sexton-test-tracefs")
    with Path(f"{place}.lock").open("w") as lock:
        # One place for every worker, unmounted by the last: each finds the others' mount.
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            find_tracefs(open_host())
        except SourceAbsent:
            place.mkdir(exist_ok=True)
            if subprocess.run(["mount", "-t", "tracefs", "nodev", place], check=False).returncode:
                pytest.skip("tracefs cannot be mounted here")
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield find_tracefs(open_host())
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if place.is_mount():
                # Lazily: another sexton on the node may have found the mount and be reading it.
                subprocess.run(["umount", "-l", place], check=True)
                place.rmdir()


def until(what: Callable[[], bool], most_s: float = 180.0) -> bool:
    """Wait for something the kernel does in its own time, on a machine that others keep busy."""
    end = monotonic() + most_s
    while not what():
        if monotonic() > end:
            return False
        sleep(0.02)
    return True
