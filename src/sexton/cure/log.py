"""The audit log: every decision, in the order it was taken, for ever.

``audit.log.jsonl``, one JSON object a line, appended and synced, never rewritten: what was planned
and confirmed, refused, begun, done, undone, verified, and by whom; dry runs too.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

from sexton.cure.state import State
from sexton.errors import SourceError
from sexton.host.reader import LiveFiles, text

NAME = "audit.log.jsonl"
SCHEMA = "sexton.fix_log/1"


def note(state: State, event: str, **told: Any) -> None:
    """One line; `who` is the user who asked, seen through sudo."""
    line = {
        "schema": SCHEMA,
        "unix": time.time(),
        "event": event,
        "who": _who(),
        "pid": os.getpid(),
        **told,
    }
    state.append(NAME, json.dumps(line, separators=(",", ":")).encode("ascii"))


def lines(state: State) -> Iterator[dict[str, Any]]:
    """Every line that is one, oldest first."""
    for raw in (state.read(NAME) or b"").split(b"\n"):
        try:
            line = json.loads(raw) if raw else None
        except ValueError:
            continue  # cut off by a crash
        if isinstance(line, dict) and "event" in line and "unix" in line:
            yield line


def _who() -> str:
    """sudo tells who called it; the login uid says who came in, however root was reached."""
    named = os.environ.get("SUDO_USER")
    if named:
        return f"{named} (sudo)"
    try:
        login = int(text(LiveFiles(), "/proc/self/loginuid"))
    except (SourceError, ValueError):
        login = 0xFFFFFFFF
    if login in (0xFFFFFFFF, os.geteuid()):
        return f"uid {os.geteuid()}"
    return f"uid {os.geteuid()} (logged in as uid {login})"
