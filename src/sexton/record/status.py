"""``status.json``: what the recorder costs, keeps and has shed, for people who look now."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sexton.store.layout import ASIDE

NAME = "status.json"


class Note(NamedTuple):
    """One of the last things that the recorder had to say."""

    wall_s: float
    kind: str
    detail: str


def write_status(directory: Path, told: Mapping[str, Any]) -> None:
    """Replace it. Not synced, since after a crash it is worth nothing; on a full disk the old one
    stays, and the recording itself says why."""
    aside = directory / f"{ASIDE}{NAME}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        with os.fdopen(os.open(aside, flags, 0o600), "wb") as stream:
            stream.write(json.dumps(told).encode())
        aside.rename(directory / NAME)
