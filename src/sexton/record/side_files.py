"""The small files of a recording: pins, marks and the status, off the sampling thread.

Each is a file of its own on the same disk as the recording, and a disk can hang for minutes. So a
thread writes and reads them; the recorder leaves what is to be written here, comes by once a second
for what was found, and never waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sexton.record.status import write_status
from sexton.store.marks import take_marks
from sexton.store.pins import Pin, add_pin

#: Pins that wait for a disk that hangs; past it the oldest is given up.
_MOST_PINS = 1000


class Desk:
    """Takes pins and the status, gives marks and what became of the pins."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._status: Mapping[str, Any] | None = None
        self._to_pin: deque[Pin] = deque(maxlen=_MOST_PINS)
        self._pinned: deque[Pin] = deque(maxlen=_MOST_PINS)
        self._marks: deque[str] = deque()
        self._problems: deque[str] = deque(maxlen=_MOST_PINS)
        self._wake = threading.Event()
        self._looked = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="sexton-desk", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """See whether somebody left a mark."""
        self._wake.set()

    def pin(self, pin: Pin) -> None:
        self._to_pin.append(pin)
        self._wake.set()

    def show(self, status: Mapping[str, Any]) -> None:
        """The status as of now; one that was not written yet is forgotten."""
        self._status = status
        self._wake.set()

    def marks(self) -> list[str]:
        """What people left since the last time."""
        return _drained(self._marks)

    def last_marks(self, patience_s: float = 2.0) -> list[str]:
        """What people left up to now; of a disk that hangs what it has given so far."""
        self._looked.clear()
        self.look()
        self._looked.wait(patience_s)
        return self.marks()

    def pinned(self) -> list[Pin]:
        """Pins that are on disk since the last time."""
        return _drained(self._pinned)

    def problems(self) -> list[str]:
        """Why pins could not be written, since the last time."""
        return _drained(self._problems)

    def close(self, patience_s: float = 5.0) -> None:
        """Write what waits, but do not wait for a disk that hangs for longer than so."""
        self._closing = True
        self._wake.set()
        self._thread.join(patience_s)

    def _loop(self) -> None:
        while True:
            last = self._closing  # before the work: what comes after it is work for another round
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
        if not self._closing:  # nobody comes by for them any more: taken, they would be lost
            self._marks.extend(take_marks(self._directory))
            self._looked.set()
        status, self._status = self._status, None
        if status is not None:
            write_status(self._directory, status)


def _drained(items: deque[Any]) -> list[Any]:
    return [items.popleft() for _ in range(len(items))]
