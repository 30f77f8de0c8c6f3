"""What commands must not wait for."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest


@pytest.fixture
def freezer() -> Iterator[Path]:
    """A cgroup; once frozen, the kernel does not let its processes go, not even by SIGKILL."""
    place = Path("/sys/fs/cgroup/freezer") / f"sexton-test-{os.getpid()}"
    if not place.parent.joinpath("tasks").exists():
        pytest.skip("no freezer of cgroup v1")
    place.mkdir()
    try:
        yield place
    finally:
        place.joinpath("freezer.state").write_text("THAWED")
        deadline = time.monotonic() + 30
        while place.exists() and time.monotonic() < deadline:
            with suppress(OSError):
                place.rmdir()
