"""What a recorder that was killed left behind, put in order by the next one.

Only for whoever holds the recording's lock: half-written files (their names start with a dot) are
removed, and open segments are sealed with all that their journals vouch for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from sexton.store.layout import ASIDE, DIRECTORIES, segments_in
from sexton.store.sealed import seal


def take_over(directory: Path) -> list[str]:
    """What was found and done, in words; nothing where the last recorder ended in order."""
    told: list[str] = []
    for place in (directory, *(directory / name for name in DIRECTORIES)):
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(place)):
                if not entry.name.startswith(ASIDE):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)
                told.append(f"{entry.name}: half written, removed")
    for name in segments_in(directory / "open"):
        try:
            whole, problems = seal(directory / "open" / name.text, directory / "segments")
        except OSError as error:  # a full disk: it stays open, and readable, until there is room
            told.append(f"{name.text}: could not be sealed: {error.strerror}")
            continue
        told += problems
        if whole is not None:
            told.append(f"{name.text}: left open by a recorder that was killed, sealed")
    return told
