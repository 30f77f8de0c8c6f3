"""A companion that cannot take the recorder with it.

Companions promise not to raise. One that does all the same (a disk that turned read-only under
perf's files, a trace instance that somebody took away) is told in the recording, the first time and
at each doubling, and asked again at the next beat.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sexton.model.recorder import RecorderNote
from sexton.model.row import Row
from sexton.model.text import printable
from sexton.record.companion import Companion
from sexton.store.pins import Pin

T = TypeVar("T")


class Guarded:
    """Asks another one, and answers for it where it fails."""

    def __init__(self, companion: Companion) -> None:
        self.name = companion.name
        self.outlasts = companion.outlasts
        self.within = companion
        self.failures = 0
        self._told = 0
        self._last = ""
        self._cost = (0.0, 0)

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:
        nothing: Sequence[Row] = ()
        found = list(self._ask(lambda: self.within.beat(now_s, alarm), nothing))
        if self.failures >= max(1, 2 * self._told):
            self._told = self.failures
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
        told = self._ask(self.within.status, nothing)
        return {**told, "failures": self.failures} if self.failures else told

    def _ask(self, function: Callable[[], T], otherwise: T) -> T:
        try:
            return function()
        except Exception as error:  # noqa: BLE001 - the guard: counted and told
            self.failures += 1
            self._last = printable(f"{type(error).__name__}: {error}".split("\n")[0])
            return otherwise
