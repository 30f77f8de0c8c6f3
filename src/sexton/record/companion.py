"""Companions: what runs beside the sampling loop, as the recorder sees it.

Companions must not raise. `Guarded` catches one that does (a disk that turned read-only under
perf's files, a trace instance that was removed): the failure is recorded the first time and at
each doubling, and the companion is called again at the next beat.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from sexton.errors import SourceTimeout
from sexton.host.host import Host
from sexton.model.row import Row
from sexton.model.rows.recorder import RecorderNote
from sexton.model.text import printable
from sexton.record.sampler import Answer, Worker
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

    One that `outlasts` the recording is closed after the last segment was sealed. One that
    `may_hang` in the kernel is called in a thread that can be left behind.
    """

    name: str
    outlasts: bool
    may_hang: bool

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
#: A write to tracefs takes milliseconds, or tens of them on a loaded node.
_MOST_S = 2.0


class Guarded:
    """A companion whose exceptions are caught and counted, and that cannot hang the loop."""

    def __init__(self, companion: Companion) -> None:
        self.name = companion.name
        self.outlasts = companion.outlasts
        self.may_hang = companion.may_hang
        self._thread = Worker() if companion.may_hang else None
        self._hung: Answer | None = None
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
            return function() if self._thread is None else self._in_time(function, otherwise)
        except Exception as error:  # noqa: BLE001 - the guard: counted and recorded
            self.failures += 1
            self._last = printable(f"{type(error).__name__}: {error}".split("\n")[0])
            return otherwise

    def _in_time(self, function: Callable[[], T], otherwise: T) -> T:
        """The same in the thread; nothing more is given to it while it hangs."""
        assert self._thread is not None
        if self._hung is not None and not self._hung.done.is_set():
            return otherwise
        made: list[T] = []

        def call() -> tuple[Row, ...]:
            made.append(function())
            return ()

        self._hung = self._thread.call(self.name, call)
        if not self._hung.done.wait(_MOST_S):
            raise TimeoutError(f"no answer in {_MOST_S:g} s")
        if self._hung.error is not None:
            raise self._hung.error
        return made[0]


def make_in_time(make: Callable[[Place], Companion], place: Place) -> Companion:
    """Make one that may hang in the kernel; one that comes too late is closed again."""
    worker = Worker()
    made: list[Companion] = []
    late = threading.Event()

    def build() -> tuple[Row, ...]:
        made.append(make(place))
        if late.is_set():
            made[0].close()
        return ()

    answer = worker.call("companion", build)
    if not answer.done.wait(_MOST_S):
        late.set()
        worker.stop()
        raise SourceTimeout("tracefs", f"the kernel did not answer in {_MOST_S:g} s")
    worker.stop()
    if answer.error is not None:
        raise answer.error
    return made[0]
