"""How long a connection may say nothing, and how many one peer may hold.

uvicorn waits for ever for the rest of a request: a few hundred half requests, from whoever can
reach us and without a token, would lock everybody out.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

#: A request is there, or its connection is closed.
REQUEST_S = 10.0
#: Of one address; a page has six, and a tunnel is one address for all who use it.
MOST_OF_ONE = 128


class Patient(H11Protocol):
    """uvicorn's own, but for that."""

    _held: ClassVar[Counter[str]] = Counter()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._peer = str(self.client[0]) if self.client else ""
        self._held[self._peer] += 1
        self._waiting: asyncio.TimerHandle | None = None
        if self._held[self._peer] > MOST_OF_ONE:
            transport.close()
        else:
            self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._rest()
        elif self._waiting is None:  # the begin of another request, and not its end
            self._expect()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:  # which looks after it from here
            self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        self._held[self._peer] -= 1
        if self._held[self._peer] <= 0:
            del self._held[self._peer]
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._waiting = self.loop.call_later(REQUEST_S, self._too_slow)

    def _rest(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _too_slow(self) -> None:
        self._waiting = None
        if not self.transport.is_closing():
            self.transport.close()
