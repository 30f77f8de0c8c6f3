"""What a recorder that was killed left behind, put in order by the next one.

Only for whoever holds the `Lock`. What was being written when it ended goes: nothing vouches for
it. The segments it left open are sealed, so that they take part in retention; one that cannot be
sealed now, on a full disk, stays open, is read like any other, and waits for the next start.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa

from sexton.model.text import count, printable
from sexton.store.layout import ASIDE, DIRECTORIES, segments_in
from sexton.store.retention import drop_replaced
from sexton.store.sealed import seal


def take_over(directory: Path) -> list[str]:
    """Remove what is half written and seal what is open; what was met, one line each."""
    notes = []
    removed = sum(_remove_aside(directory / place) for place in ("", *DIRECTORIES))
    if removed:
        notes.append(f"removed {count(removed, 'half-written leftover')}")
    drop_replaced(directory / "segments")
    sealed = 0
    for name in segments_in(directory / "open"):
        opened = directory / "open" / name.text
        try:
            whole, problems = seal(opened, directory / "segments")
        except (OSError, pa.ArrowException) as error:
            why = getattr(error, "strerror", None) or str(error).split("\n")[0]
            notes.append(printable(f"{name.text}: left open, cannot be sealed: {why}"))
            continue
        sealed += whole is not None
        notes += [printable(problem) for problem in problems]
    if sealed:
        notes.append(f"sealed {count(sealed, 'segment')} that an earlier recorder left open")
    return notes


def _remove_aside(place: Path) -> int:
    """Delete what bears the name of the unfinished, and never through a link."""
    try:
        with os.scandir(place) as entries:
            found = [entry for entry in entries if entry.name.startswith(ASIDE)]
    except OSError:
        return 0
    for entry in found:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            try:
                os.unlink(entry.path)
            except OSError:
                continue
    return sum(not os.path.lexists(entry.path) for entry in found)
