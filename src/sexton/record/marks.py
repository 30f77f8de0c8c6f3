"""A person's remarks on their way into a recording: ``sexton recording mark DIR "job 17 died"``.

The command leaves a small file under ``marks/``; the recorder looks there once a second, takes the
text in, pins the minutes around it, and deletes the file.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import NamedTuple

from sexton.model.text import printable, shorten

LONGEST = 500
_MOST_BYTES = 1 << 14
_MOST_AT_ONCE = 20


class Note(NamedTuple):
    """One of the last things that the status shows."""

    wall_s: float
    kind: str
    detail: str


def take_marks(directory: Path) -> list[str]:
    """The texts that wait, oldest first, and delete them."""
    place = directory / "marks"
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return []
    found = []
    for name in [each for each in names if not each.startswith(".")][:_MOST_AT_ONCE]:
        path = place / name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as stream:
                told = json.loads(stream.read(_MOST_BYTES))
            found.append(shorten(printable(str(told["text"])), LONGEST))
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not a mark: gone with the rest, so that it is not met again every second
        with contextlib.suppress(OSError):
            path.unlink()
    return found
