"""Remarks of people: "job 17 died", so that the minutes around it are kept.

A mark is a small file under ``marks/``. The recorder that writes there takes it in within a second:
a row, an alarm, a pin. Where none runs, the pin is made at once, over what was recorded.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from pathlib import Path
from typing import NamedTuple

from sexton.errors import StoreError
from sexton.model.text import printable, shorten
from sexton.store.layout import read_plain, write_whole
from sexton.store.pins import Pin, add_pin

#: What is kept around a mark.
BEFORE_S, AFTER_S = 300.0, 120.0
MOST_CHARACTERS = 500
_MOST_BYTES = 1 << 14
_MOST_AT_ONCE = 20


class Remark(NamedTuple):
    """What somebody said, and when; `boot_id` is whose monotonic clock it was."""

    text: str
    mono_s: float
    wall_s: float
    boot_id: str


def remark_now(text: str, boot_id: str) -> Remark:
    """A remark made at this moment; `StoreError` where it says nothing or too much."""
    said = printable(" ".join(text.split()))
    if not said:
        raise StoreError("a mark needs some words")
    if len(said) > MOST_CHARACTERS:
        raise StoreError(f"a mark has at most {MOST_CHARACTERS} characters, not {len(said)}")
    return Remark(said, time.monotonic(), time.time(), boot_id)


def leave_mark(directory: Path, remark: Remark) -> Path:
    """Leave it for the recorder that runs here."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(remark.wall_s))
    path = directory / "marks" / f"{moment}-{secrets.token_hex(4)}.json"
    write_whole(path, json.dumps(remark._asdict()).encode())
    return path


def pin_mark(directory: Path, remark: Remark) -> Pin:
    """Keep the minutes around it."""
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(remark.wall_s))
    pin = Pin(
        id=f"{moment}-mark-{secrets.token_hex(4)}",
        kind="mark",
        about=remark.text,
        detail="",
        boot_id=remark.boot_id,
        start_s=remark.mono_s - BEFORE_S,
        end_s=remark.mono_s + AFTER_S,
        wall_s=remark.wall_s,
    )
    add_pin(directory, pin)
    return pin


def take_marks(directory: Path) -> list[str]:
    """The texts that wait, oldest first, and delete them."""
    place = directory / "marks"
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return []
    found = []
    for name in [each for each in names if not each.startswith(".")][:_MOST_AT_ONCE]:
        said = _text_of(place / name)
        try:
            (place / name).unlink()
        except OSError:  # no file, or a disk that is read-only: else it came again every second
            continue
        if said is not None:
            found.append(said)
    return found


def _text_of(path: Path) -> str | None:
    """`None` for what is no mark: gone with the rest, so that it is not met again."""
    try:
        told = json.loads(read_plain(path, _MOST_BYTES))
        return shorten(printable(str(told["text"])), MOST_CHARACTERS)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
