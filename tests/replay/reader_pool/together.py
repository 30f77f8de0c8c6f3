"""Waiting for one another, and what a recording says however many read it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

#: Longer than anything here takes on the slowest machine: to fail, not to measure.
PATIENCE_S = 180.0


def wait_for(happened: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


def both_there(place: Path, item: int) -> bool:
    """True where somebody else does the other half at the same time."""
    (place / str(item % 2)).touch()
    return wait_for((place / str(1 - item % 2)).exists)


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()
