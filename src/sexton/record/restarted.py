"""A companion that is a process of its own, and is started again whenever it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sexton.host.runner import ChildOptions, Running, start
from sexton.model.row import Row
from sexton.model.rows.recorder import RecorderNote
from sexton.store.pins import Pin

#: Until it is started again: doubled each time, and reset by a run that lasted.
_AGAIN_S, _AT_MOST_S, _LASTED_S = 1.0, 60.0, 300.0
_NICE = 15


class RestartedProcess:
    """See `sexton.record.companions.Companion`. It inherits our standard error, and the descriptors
    in `keep`. Its cost is not part of the recorder's budget."""

    outlasts = False
    may_hang = False

    def __init__(self, name: str, command: Sequence[str], keep: Sequence[int] = ()) -> None:
        self.name = name
        self._command = command
        self._options = ChildOptions(
            nice=_NICE, shares_stderr=True, dies_with_parent=True, keep=tuple(keep)
        )
        self._child: Running | None = None
        self._began_s = 0.0
        self._due_s = 0.0
        self._pause_s = _AGAIN_S
        self._starts = 0

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:  # noqa: ARG002
        """Start it once there is a recording, and again after it ended."""
        rows: list[Row] = []
        if self._child is not None and (status := self._child.status()) is not None:
            words = f"{self.name}: its process ended with status {status}; it is started again"
            rows.append(RecorderNote("source", words))
            self._child.stop(0.0)
            self._child = None
            lasted = now_s - self._began_s >= _LASTED_S
            self._pause_s = _AGAIN_S if lasted else min(2 * self._pause_s, _AT_MOST_S)
            self._due_s = now_s + self._pause_s
        if self._child is None and now_s >= self._due_s:
            self._child = start(self._command, self._options)
            self._began_s = now_s
            self._starts += 1
        return rows

    def alarmed(self, pin: Pin) -> None:
        """It sees alarms in the recording."""

    def cost(self) -> tuple[float, int]:
        return 0.0, 0

    def rest(self) -> None:
        """It has no cost here, so it is not paused."""

    def wake(self) -> None:
        """See `rest`."""

    def close(self) -> None:
        if self._child is not None:
            self._child.stop(2.0)
            self._child = None

    def status(self) -> dict[str, Any]:
        pid = None if self._child is None else self._child.pid
        return {"pid": pid, "starts": self._starts}
