"""Companions: what runs beside the sampling loop, as the recorder sees it.

Companions must not raise. `Guarded` catches one that does (a disk that turned read-only under
perf's files, a trace instance that was removed): the failure is recorded the first time and at
each doubling, and the companion is called again at the next beat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from sexton.host.host import Host
from sexton.model.recorder import RecorderNote
from sexton.model.row import Row
from sexton.model.text import printable
from sexton.store.pins import Pin


class Place(NamedTuple):
    """What a companion needs to know of the recorder it is made for."""

    host: Host
    directory: Path
    node: str
    boot_id: str
    most_bytes: int


class Companion(Protocol):
    """Something that lives beside the loop. None of its methods may block or raise.

    One that `outlasts` the recording is closed after the last segment was sealed.
    """

    name: str
    outlasts: bool

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:
        """Once a second; what it has to tell. `alarm` where one is on."""

    def alarmed(self, pin: Pin) -> None:
        """An alarm was raised or goes on."""

    def cost(self) -> tuple[float, int]:
        """CPU seconds of its children so far, and their resident bytes."""

    def rest(self) -> None:
        """It costs too much: stop until further notice."""

    def wake(self) -> None:
        """Go on."""

    def close(self) -> None:
        """Give back everything."""

    def status(self) -> dict[str, Any]:
        """For status.json."""


T = TypeVar("T")


class Guarded:
    """A companion whose exceptions are caught and counted."""

    def __init__(self, companion: Companion) -> None:
        self.name = companion.name
        self.outlasts = companion.outlasts
        self.within = companion
        self.failures = 0
        self._noted = 0
        self._last = ""
        self._cost = (0.0, 0)

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:
        nothing: Sequence[Row] = ()
        found = list(self._ask(lambda: self.within.beat(now_s, alarm), nothing))
        if self.failures >= max(1, 2 * self._noted):
            self._noted = self.failures
            words = f"{self.name} failed {self.failures:,} times, now with {self._last}"
            found.append(RecorderNote("source", words))
        return found

    def alarmed(self, pin: Pin) -> None:
        self._ask(lambda: self.within.alarmed(pin), None)

    def cost(self) -> tuple[float, int]:
        self._cost = self._ask(self.within.cost, self._cost)
        return self._cost

    def rest(self) -> None:
        self._ask(self.within.rest, None)

    def wake(self) -> None:
        self._ask(self.within.wake, None)

    def close(self) -> None:
        self._ask(self.within.close, None)

    def status(self) -> dict[str, Any]:
        nothing: dict[str, Any] = {}
        status = self._ask(self.within.status, nothing)
        return {**status, "failures": self.failures} if self.failures else status

    def _ask(self, function: Callable[[], T], otherwise: T) -> T:
        try:
            return function()
        except Exception as error:  # noqa: BLE001 - the guard: counted and recorded
            self.failures += 1
            self._last = printable(f"{type(error).__name__}: {error}".split("\n")[0])
            return otherwise
