"""Answers that took a while, kept as long as they hold."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar, cast

from sexton.explorer.tiles.processes import Stop, Unanswered
from sexton.store.recording import Recording

T = TypeVar("T")
#: What was asked; the end of its span, or `None` where it is about all there is, comes last.
Key = tuple[Any, ...]
#: How often it is looked whether somebody still waits.
_LOOK_S = 0.1


class Answered:
    """One question at a time is worked on, of all that share `working`: each takes all there is.

    The last `most` are kept; while a recorder runs, those about a span that ended `late_s` before.
    """

    def __init__(self, most: int, working: threading.Lock, late_s: float = 0.0) -> None:
        self._most, self._late_s = most, late_s
        self._working = working
        self._lock = threading.Lock()
        self._kept: OrderedDict[Key, Any] = OrderedDict()
        self._of: Recording | None = None

    def known(self, recording: Recording, key: Key) -> Any | None:
        """What was answered before, if that still holds."""
        with self._lock:
            if self._of is not recording:
                self._forget()
                self._of = recording
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def answer(
        self, recording: Recording, key: Key, ask: Callable[[], T], stop: Stop | None = None
    ) -> T:
        """The same, or what is answered now; `Unanswered` when `stop` says so before its turn."""
        found = self.known(recording, key)
        if found is not None:
            return cast("T", found)
        while not self._working.acquire(timeout=_LOOK_S):
            if stop is not None and stop():
                raise Unanswered("nobody waits for this any more")
        try:
            found = self.known(recording, key)
            if found is None:
                found = ask()
                with self._lock:
                    self._kept[key] = found
                    while len(self._kept) > self._most:
                        self._kept.popitem(last=False)
            return cast("T", found)
        finally:
            self._working.release()

    def _forget(self) -> None:
        """Those about a span that was still being recorded: there is more of it now."""
        before = self._of
        reached = before.segments[-1].end[1] if before is not None and before.segments else 0.0
        for key in list(self._kept):
            if not isinstance(key[-1], float) or key[-1] > reached - self._late_s:
                del self._kept[key]
