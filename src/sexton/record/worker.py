"""A thread that asks a source, so that nobody has to wait for one that hangs."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sexton.model.row import Row


@dataclass(slots=True)
class Answer:
    """What a call came to, and when."""

    rows: list[Row] = field(default_factory=list)
    error: BaseException | None = None
    moment: tuple[float, float] = (0.0, 0.0)
    spent_s: float = 0.0
    cpu_s: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)


class Worker:
    """A thread that runs one call at a time, so that the caller can stop waiting for it."""

    def __init__(self) -> None:
        self._busy: tuple[Answer | None, float] = (None, 0.0)
        self._calls: queue.SimpleQueue[tuple[Callable[[], Iterable[Row]], Answer] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._loop, name="sexton-source", daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], Iterable[Row]]) -> Answer:
        answer = Answer()
        self._calls.put((function, answer))
        return answer

    def busy_s(self, answer: Answer) -> float:
        """For how long it has been asking for this one; nothing where another's turn it is."""
        busy_with, since_s = self._busy
        return time.monotonic() - since_s if busy_with is answer else 0.0

    def stop(self, patience_s: float = 0.0) -> None:
        """End it after the call it is in; wait for that, but not for longer than so."""
        self._calls.put(None)
        self._thread.join(patience_s)

    def successor(self) -> Worker:
        """A fresh one, with what still stands in line here; the hanging call stays behind."""
        made = Worker()
        while True:
            try:
                made._calls.put(self._calls.get_nowait())
            except queue.Empty:
                break
        self._calls.put(None)
        return made

    def _loop(self) -> None:
        while (item := self._calls.get()) is not None:
            function, answer = item
            self._busy = (answer, time.monotonic())
            began, cpu_began = time.perf_counter(), time.thread_time()
            try:
                answer.rows.extend(function())
            except BaseException as error:  # noqa: BLE001 - the guard: counted and written down
                answer.error = error
            answer.spent_s = time.perf_counter() - began
            answer.cpu_s = time.thread_time() - cpu_began
            answer.moment = (time.monotonic(), time.time())
            answer.done.set()
