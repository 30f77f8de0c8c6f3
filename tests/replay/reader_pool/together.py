"""Waiting for one another, and what a recording says however many read it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sexton.model.window import Window
from sexton.replay import window as replay
from sexton.replay.reader_pool import Crew
from sexton.replay.span import everything
from sexton.store.recording import Recording

#: Longer than anything here takes on the slowest machine: to fail, not to measure.
PATIENCE_S = 180.0


def wait_for(happened: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


def told(window: Window) -> dict[str, Any]:
    """Everything there is in it."""
    return vars(window) | {"_batches": {k.__name__: v for k, v in window._batches.items()}}


def read_back(directory: Path, number: int) -> tuple[Any, ...]:
    """The window, what is said of it, and what was wrong, as so many processes find it."""
    found = Recording(directory)
    with Crew(found, number) as crew:
        window, notes, condensed = replay.window(found, everything(found), 0, crew=crew)
    return told(window), notes, condensed, sorted(found.problems)


def both_there(place: Path, item: int) -> bool:
    """True where somebody else does the other half at the same time."""
    (place / str(item % 2)).touch()
    return wait_for((place / str(1 - item % 2)).exists)


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()
