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

from sexton.host.runner import module_command
from sexton.record.companions import Place
from sexton.record.restarted import RestartedProcess


class MetricsServer(RestartedProcess):
    """Keeps the socket while the process is started again."""

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
        command = module_command(
            "sexton", "export", "--from", str(place.directory), *handed, *arguments
        )
        super().__init__("metrics", command, tuple(kept.values()))

    def close(self) -> None:
        super().close()
        self._socket.close()
        if self._token >= 0:
            os.close(self._token)
            self._token = -1

    def status(self) -> dict[str, Any]:
        host, port, *_ = self._socket.getsockname()
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return {"address": address, **super().status()}


def _in_memory(token: str) -> int:
    """A file that exists in memory only: others see a child's arguments."""
    handle = os.memfd_create("sexton-token", os.MFD_CLOEXEC)
    os.write(handle, token.encode("ascii"))
    return handle
