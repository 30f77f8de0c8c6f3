"""Starts the child that compacts finished hours (`sexton.store.compaction`), once an hour.

The child runs at nice 19, with one thread and bounded memory, and dies with the recorder. Killed
at any point it leaves a valid recording; the next run does the hour again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sexton.errors import SourceError
from sexton.host.runner import Manners, Running, start
from sexton.model.recorder import RecorderNote
from sexton.model.row import Row
from sexton.model.text import printable
from sexton.record.companion import Place
from sexton.store.pins import Pin

_CHILD = "sexton.store.sealer"
_MANNERS = Manners(nice=19, private=True, heard=True, dies_with_us=True)
_EVERY_S = 3600.0
#: After the start: a busy boot comes first, and then what an earlier recorder left.
_FIRST_S = 300.0
#: The lowest priority on a busy node takes its time.
_DEADLINE_S = 1200.0


@dataclass(slots=True)
class Counts:
    """For the status."""

    runs: int = 0
    segments: int = 0
    replaced: int = 0
    last_error: str = ""


class Compactor:
    """A companion of the recorder."""

    name = "compaction"
    outlasts = False

    def __init__(self, place: Place, first_s: float = _FIRST_S) -> None:
        self.counts = Counts()
        self._place = place
        self._child: Running | None = None
        self._began_s = 0.0
        self._due_s = time.monotonic() + first_s
        self._resting = False

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:
        if self._child is not None:
            return self._look(now_s)
        if now_s >= self._due_s and not alarm and not self._resting:
            self._due_s = now_s + _EVERY_S
            limits = (str(self._place.age_s), str(self._place.most_bytes))
            command = [sys.executable, "-I", "-m", _CHILD, str(self._place.directory), *limits]
            try:
                self._child = start(command, _MANNERS)
                self._began_s = now_s
            except SourceError as error:
                self.counts.last_error = printable(str(error))
        return ()

    def _look(self, now_s: float) -> Sequence[Row]:
        child = self._child
        assert child is not None
        status = child.status()
        if status is None and now_s - self._began_s < _DEADLINE_S:
            return ()
        words = child.words().strip().rpartition("\n")[2]
        child.stop(patience_s=0.0)
        self._child = None
        self.counts.runs += 1
        try:
            told = json.loads(words)
            self.counts.segments += int(told["segments"])
            self.counts.replaced += int(told["replaced"])
            problems = [str(each) for each in told["problems"]]
        except (ValueError, TypeError, KeyError):
            why = "took too long" if status is None else f"exit status {status}"
            problems = [f"compaction failed ({why}): {words[:200]}".rstrip(": ")]
        if problems:
            self.counts.last_error = printable(problems[-1])
        return [RecorderNote("disk", printable(each)) for each in problems[:5]]

    def alarmed(self, pin: Pin) -> None:
        """No run starts while an alarm is on."""

    def cost(self) -> tuple[float, int]:
        """Its CPU time is counted when it ends, like that of every child."""
        return 0.0, 0

    def rest(self) -> None:
        self._resting = True

    def wake(self) -> None:
        self._resting = False

    def close(self) -> None:
        if self._child is not None:
            self._child.stop(patience_s=0.0)
            self._child = None

    def status(self) -> dict[str, Any]:
        return {**asdict(self.counts), "running": self._child is not None}
