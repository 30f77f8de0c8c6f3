"""A job with TCP connections over a veth pair, which dies when the link is cut.

The node's own NIC is never touched: log lines of its reset are injected (see `lab.ena`), and the
packet loss of a reset is made on the veth pair. The loss is real: the node's TCP retransmits, gives
up, and the job exits.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from lab.stage import Stage
from lab.veth import veth_pair

PORT = 6379
CONNECTIONS = 24
#: The job's TCP timeout: longer than a starved poll waits before the driver resets, shorter than
#: the loss.
TIMEOUT_S = 9.0


class NetworkJob:
    """A server at the other end of the veth pair, and a job here that is connected to it."""

    def __init__(self, stage: Stage, core: int | None = None) -> None:
        self.stage = stage
        self.link = stage.enter(veth_pair())
        if core is not None:
            self.link.receive_on(core)
        stage.actor("server", self.link.peer_address, PORT, namespace=self.link.namespace)
        stage.until("the server answers", self._server_answers, 60)
        self.job = stage.actor(
            "job", self.link.peer_address, PORT, CONNECTIONS, TIMEOUT_S, may_die=True
        )

    def _server_answers(self) -> bool:
        try:
            socket.create_connection((self.link.peer_address, PORT), timeout=5).close()
        except OSError:
            return False
        return True

    def lose_link(self, lines: Sequence[str], name: str) -> None:
        """Inject the driver's lines, cut the link until the job dies, and mark ``NAME died``."""
        for line in lines:
            self.stage.inject_kmsg(line)
        self.stage.note("the link is cut")
        self.link.cut()
        began = time.monotonic()
        self.stage.until("the job dies", lambda: self.job.poll() is not None, 60)
        self.stage.note(f"{name} died after {time.monotonic() - began:.1f} s")
        self.stage.mark(f"{name} died")
        self.link.restore()
