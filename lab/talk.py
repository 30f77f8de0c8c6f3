"""A job that talks over a wire of ours, and what becomes of it when the wire is cut.

The node's own NIC is never touched: its reset is told (see `lab.ena`), and the loss that a reset
brings is made on a veth pair, where it is as real as any: the node's TCP retransmits, gives up, and
the job dies of it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from lab.stage import Stage
from lab.wire import wire

PORT = 6379
CONNECTIONS = 24
#: Of the job: longer than a starved poll waits before the driver resets, shorter than the loss.
PATIENCE_S = 9.0


class Talk:
    """A server beyond the wire, and a job here that lives by it."""

    def __init__(self, stage: Stage, core: int | None = None) -> None:
        self.stage = stage
        self.wire = stage.open(wire())
        if core is not None:
            self.wire.serve_on(core)
        stage.actor("server", self.wire.there, PORT, namespace=self.wire.namespace)
        stage.until("a server beyond the wire", self._answers, 60)
        self.job = stage.actor("job", self.wire.there, PORT, CONNECTIONS, PATIENCE_S, may_die=True)

    def _answers(self) -> bool:
        try:
            socket.create_connection((self.wire.there, PORT), timeout=5).close()
        except OSError:
            return False
        return True

    def reset(self, lines: Sequence[str], name: str) -> None:
        """The driver's words, the loss, and the end of the job called `name`."""
        for line in lines:
            self.stage.kmsg(line)
        self.stage.moment("the wire is cut")
        self.wire.cut()
        began = time.monotonic()
        self.stage.until("the job's death", lambda: self.job.poll() is not None, 60)
        self.stage.moment(f"{name} died after {time.monotonic() - began:.1f} s")
        self.stage.mark(f"{name} died")
        self.wire.mend()
