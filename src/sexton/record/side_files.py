"""The small files of a recording: pins, marks and the status; and checks whether the configuration
files changed.

They are on the same disk as the recording, and a disk can hang for minutes. So a separate thread
reads and writes them; the recorder queues what to write, collects once a second what was read, and
never waits. ``status.json`` is the recorder's current cost, size and paused sources.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sexton.store.layout import ASIDE, new_file
from sexton.store.pins import Pin, add_pin, take_marks

#: Pins that wait for a hanging disk; past it the oldest is dropped.
_MOST_PINS = 1000


class SideFileWriter:
    """Writes pins and the status, reads marks; all queued, nothing blocks the caller."""

    def __init__(self, directory: Path, watched: Sequence[str] = ()) -> None:
        self._directory = directory
        self._watched = {path: _look_of(path) for path in watched}
        self._changed: deque[str] = deque(maxlen=_MOST_PINS)
        self._status: Mapping[str, Any] | None = None
        self._to_pin: deque[Pin] = deque(maxlen=_MOST_PINS)
        self._pinned: deque[Pin] = deque(maxlen=_MOST_PINS)
        self._marks: deque[str] = deque()
        self._problems: deque[str] = deque(maxlen=_MOST_PINS)
        self._wake = threading.Event()
        self._looked = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="sexton-side-files", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Look for new marks."""
        self._wake.set()

    def pin(self, pin: Pin) -> None:
        self._to_pin.append(pin)
        self._wake.set()

    def show(self, status: Mapping[str, Any]) -> None:
        """Write this status; an older one that was not written yet is dropped."""
        self._status = status
        self._wake.set()

    def marks(self) -> list[str]:
        """Marks read since the last call."""
        return _drained(self._marks)

    def last_marks(self, patience_s: float = 2.0) -> list[str]:
        """All marks up to now, or what a hanging disk has returned within `patience_s`."""
        self._looked.clear()
        self.look()
        self._looked.wait(patience_s)
        return self.marks()

    def pinned(self) -> list[Pin]:
        """Pins written since the last call."""
        return _drained(self._pinned)

    def changed(self) -> list[str]:
        """Watched files that were written, made or deleted since the last call."""
        return _drained(self._changed)

    def problems(self) -> list[str]:
        """Why pins could not be written, since the last call."""
        return _drained(self._problems)

    def close(self, patience_s: float = 5.0) -> None:
        """Write what is queued; wait at most `patience_s` for a disk that hangs."""
        self._closing = True
        self._wake.set()
        self._thread.join(patience_s)

    def _loop(self) -> None:
        while True:
            last = self._closing  # read before the work: what is queued later needs another round
            self._work()
            if last:
                return
            self._wake.wait()
            self._wake.clear()

    def _work(self) -> None:
        while self._to_pin:
            pin = self._to_pin.popleft()
            try:
                add_pin(self._directory, pin)
                self._pinned.append(pin)
            except OSError as error:
                self._problems.append(f"could not pin {pin.kind}: {error.strerror}")
        if not self._closing:  # they would not be collected any more and be lost
            self._marks.extend(take_marks(self._directory))
            self._looked.set()
        for path, before in self._watched.items():
            now = _look_of(path)
            if now != before:
                self._watched[path] = now
                self._changed.append(path)
        status, self._status = self._status, None
        if status is not None:
            write_status(self._directory, status)


def _look_of(path: str) -> tuple[int, ...] | None:
    """Differs after a change of a file or of a directory's entries; `None` if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _drained(items: deque[Any]) -> list[Any]:
    return [items.popleft() for _ in range(len(items))]


NAME = "status.json"


class Note(NamedTuple):
    """A recent note of the recorder."""

    wall_s: float
    kind: str
    detail: str


def write_status(directory: Path, status: Mapping[str, Any]) -> None:
    """Replace the status. Not synced, since it is worthless after a crash; on a full disk the old
    one stays, and the recording itself says why."""
    aside = directory / f"{ASIDE}{NAME}"
    with contextlib.suppress(OSError):
        with os.fdopen(new_file(aside), "wb") as stream:
            stream.write(json.dumps(status).encode())
        aside.rename(directory / NAME)
