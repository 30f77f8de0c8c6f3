"""Pins: spans that retention keeps, around an alarm or a user's mark.

A pin is one small file under ``pins/``: what raised it and the span it holds, on the monotonic
clock of one boot, since wall clocks jump. A segment that touches a pinned span of its own boot is
kept as long as the pin is. Pins may take a share of the bytes; past it the oldest pin is dropped
(see `sexton.store.retention`).

A mark ("job 17 died") is a small file under ``marks/``. A running recorder reads it within a second
and adds a row, an alarm and a pin. If none is running, the pin is added at once.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from sexton.errors import StoreError
from sexton.model.text import printable, shorten
from sexton.store.layout import read_plain, stamp, write_whole

_SUFFIX = ".json"
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}", re.ASCII)
_MOST_BYTES = 1 << 16
_MOST_PINS = 10_000


class Spanned(Protocol):
    """Something of one boot with (monotonic, wall) edges."""

    boot_id: str
    start: tuple[float, float]
    end: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Pin:
    """`start_s` and `end_s` are monotonic seconds of boot `boot_id`; `wall_s` is its wall time."""

    id: str
    kind: str
    about: str
    detail: str
    boot_id: str
    start_s: float
    end_s: float
    wall_s: float

    def holds(self, segment: Spanned) -> bool:
        """Whether the segment touches the pinned span."""
        return (
            segment.boot_id == self.boot_id
            and segment.start[0] <= self.end_s
            and segment.end[0] >= self.start_s
        )


def add_pin(directory: Path, pin: Pin) -> None:
    """Write a pin; one with the same id is replaced (a lasting alarm moves its end)."""
    if _ID.fullmatch(pin.id) is None:
        raise ValueError(f"not a name for a file: {pin.id!r}")
    text = json.dumps({key: value for key, value in asdict(pin).items() if key != "id"})
    write_whole(directory / "pins" / f"{pin.id}{_SUFFIX}", text.encode(), links=False)


def drop_pin(directory: Path, pin: Pin) -> bool:
    """Delete a pin; false if the disk refuses."""
    try:
        (directory / "pins" / f"{pin.id}{_SUFFIX}").unlink(missing_ok=True)
    except OSError:
        return False
    return True


def pins_in(directory: Path) -> tuple[list[Pin], list[str]]:
    """Every pin, oldest first, and problems with files that are not pins."""
    found: list[Pin] = []
    problems: list[str] = []
    try:
        names = sorted(os.listdir(directory / "pins"))[:_MOST_PINS]
    except OSError:
        return [], []
    for name in names:
        if name.startswith("."):
            continue
        try:
            found.append(_pin(directory / "pins" / name))
        except FileNotFoundError:  # deleted just now
            continue
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            problems.append(printable(f"pins/{name}: not a pin, skipped"))
    return sorted(found, key=lambda pin: (pin.wall_s, pin.id)), problems


def _pin(path: Path) -> Pin:
    if path.suffix != _SUFFIX or _ID.fullmatch(path.stem) is None:
        raise ValueError("not a pin's name")
    stored = json.loads(read_plain(path, _MOST_BYTES))
    pin = Pin(
        id=path.stem,
        kind=str(stored["kind"]),
        about=str(stored["about"]),
        detail=str(stored["detail"]),
        boot_id=str(stored["boot_id"]),
        start_s=float(stored["start_s"]),
        end_s=float(stored["end_s"]),
        wall_s=float(stored["wall_s"]),
    )
    if not all(map(math.isfinite, (pin.start_s, pin.end_s, pin.wall_s))):
        raise ValueError("no span of time")
    return pin


#: How much is kept around a mark.
BEFORE_S, AFTER_S = 300.0, 120.0
MOST_CHARACTERS = 500
_MOST_MARK_BYTES = 1 << 14
_MOST_AT_ONCE = 20


class Remark(NamedTuple):
    """The text of a mark and its time; `boot_id` is the boot of its monotonic clock."""

    text: str
    mono_s: float
    wall_s: float
    boot_id: str


def remark_now(text: str, boot_id: str) -> Remark:
    """A remark made now; `StoreError` if it is empty or too long."""
    said = printable(" ".join(text.split()))
    if not said:
        raise StoreError("a mark needs some words")
    if len(said) > MOST_CHARACTERS:
        raise StoreError(f"a mark has at most {MOST_CHARACTERS} characters, not {len(said)}")
    return Remark(said, time.monotonic(), time.time(), boot_id)


def leave_mark(directory: Path, remark: Remark) -> Path:
    """Leave a mark for the recorder that is running here."""
    path = directory / "marks" / f"{stamp(remark.wall_s)}-{secrets.token_hex(4)}.json"
    write_whole(path, json.dumps(remark._asdict()).encode(), links=False)
    return path


def pin_mark(directory: Path, remark: Remark) -> Pin:
    """Pin the minutes around a remark."""
    pin = Pin(
        id=f"{stamp(remark.wall_s)}-mark-{secrets.token_hex(4)}",
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
    """Read and delete the waiting marks; their texts, oldest first."""
    place = directory / "marks"
    try:
        names = sorted(os.listdir(place))
    except OSError:
        return []
    found = []
    for name in [entry for entry in names if not entry.startswith(".")][:_MOST_AT_ONCE]:
        said = text_of_mark(place / name)
        try:
            (place / name).unlink()
        except OSError:  # a directory, or a read-only disk: it would be read again every second
            continue
        if said is not None:
            found.append(said)
    return found


def text_of_mark(path: Path) -> str | None:
    """The text of a mark; `None` if the file is not one (it is deleted all the same)."""
    try:
        stored = json.loads(read_plain(path, _MOST_MARK_BYTES))
        return shorten(printable(str(stored["text"])), MOST_CHARACTERS)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
