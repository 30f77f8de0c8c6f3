"""The recorder's companion that serves its metrics and its page: a process of its own.

The recorder binds the socket, so that a port in use is an error at its start, and so that clients
wait instead of being refused while the process is started again. What it costs is not part of the
recorder's budget: a page that is looked at would pause sources. It has limits of its own
(`sexton.sandbox`) and reports what it costs. Its standard error is the recorder's: a changed web
configuration or a failed refresh is said there.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from sexton.host.runner import ChildOptions, Running, module_command, start
from sexton.model.row import Row
from sexton.model.rows.recorder import RecorderNote
from sexton.record.companions import Place
from sexton.store.pins import Pin

#: Until it is started again: doubled each time, and reset by a run that lasted.
_AGAIN_S, _AT_MOST_S, _LASTED_S = 1.0, 60.0, 300.0
_NICE = 15


class MetricsServer:
    """Starts the process, and starts it again when it ends."""

    name = "metrics"
    outlasts = False
    may_hang = False

    def __init__(
        self,
        place: Place,
        listening: socket.socket,
        arguments: Sequence[str],
        token: str | None = None,
    ) -> None:
        self._socket = listening
        self._token = -1 if token is None else _in_memory(token)
        kept = {"--listen-fd": listening.fileno()}
        if token is not None:
            kept["--token-fd"] = self._token
        handed = [word for name, number in kept.items() for word in (name, str(number))]
        self._command = module_command(
            "sexton", "export", "--from", str(place.directory), *handed, *arguments
        )
        self._options = ChildOptions(
            nice=_NICE, shares_stderr=True, dies_with_parent=True, keep=tuple(kept.values())
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
            words = f"metrics: the server ended with status {status}; it is started again"
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
        self._socket.close()
        if self._token >= 0:
            os.close(self._token)
            self._token = -1

    def status(self) -> dict[str, Any]:
        host, port, *_ = self._socket.getsockname()
        return {
            "address": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
            "pid": None if self._child is None else self._child.pid,
            "starts": self._starts,
        }


def _in_memory(token: str) -> int:
    """A file that exists in memory only: others see a child's arguments."""
    handle = os.memfd_create("sexton-token", os.MFD_CLOEXEC)
    os.write(handle, token.encode("ascii"))
    return handle
