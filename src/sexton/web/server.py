"""The server process: serves a bound socket (`sexton.web.address`), with or without TLS, and stops
quickly.

A process may confine itself (`sexton.sandbox`) once the socket is bound: from then on no other is
opened, and changed certificates are still read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, cast

import uvicorn

from sexton.web.access import Access
from sexton.web.connections import MOST_CONNECTIONS, LimitedProtocol, Reception, make_room
from sexton.web.guard import App

if TYPE_CHECKING:
    import ssl

    from sexton.web.config import WebConfig


class Server(uvicorn.Server):
    """Serves `app`, under the rules of `web` if given, until `end`: then it stops at once.

    ``asyncio.run(server.serve([socket]))``, in any thread; in the main one, SIGINT, SIGTERM and
    SIGHUP end it. `close` ends streams and drops running jobs.
    """

    def __init__(
        self,
        app: App,
        close: Callable[[], Awaitable[None]] | None = None,
        web: WebConfig | None = None,
    ) -> None:
        # Malformed requests are not worth a log line.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._access = None if web is None else Access(app, web)
        super().__init__(
            uvicorn.Config(
                self._access or app,
                http=LimitedProtocol,
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,  # `LimitedProtocol` sets it; uvicorn would wake up for it
                proxy_headers=False,
                limit_concurrency=MOST_CONNECTIONS,
                timeout_graceful_shutdown=1,
            )
        )
        self._close = close
        self._web = web
        self._reception = Reception(self._begin)
        self._accepting: list[asyncio.Task[None]] = []
        self._ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def end(self) -> None:
        """Stop; safe to call from another thread and from a signal handler."""
        self.should_exit = self.force_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has stopped already
                self._loop.call_soon_threadsafe(self._ended.set)

    async def main_loop(self) -> None:
        """Replaces uvicorn's, which looks ten times a second whether to stop: 0.2 % of a core."""
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:  # by an `end` that came before there was a loop
            await self._ended.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Replaces uvicorn's, which raises the signal again at the end."""
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in ending_signals():
                loop.add_signal_handler(number, self.end)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Replaces uvicorn's, which has one TLS context for the life of the server."""
        await self.lifespan.startup()
        loop = asyncio.get_running_loop()
        self.servers = []
        self._accepting = [
            loop.create_task(self._reception.accept(listening)) for listening in sockets or []
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._close is not None:
            await self._close()
        if self._access is not None:
            self._access.close()
        for task in self._accepting:
            task.cancel()
        self._reception.close()
        await super().shutdown(sockets)

    def _begin(self) -> tuple[LimitedProtocol, ssl.SSLContext | None] | None:
        """A protocol for a new connection, and the TLS context in force."""
        held = self.server_state.connections
        if len(held) >= MOST_CONNECTIONS - 1:  # at that number uvicorn answers with an error
            make_room(cast("set[LimitedProtocol]", held))
        protocol = LimitedProtocol(self.config, self.server_state, self.lifespan.state)
        web = self._web
        if web is None:
            return protocol, None
        web.look()
        if web.tls is not None and web.failure:
            return None  # without TLS, `Access` answers with an error
        protocol.web, protocol.tls = web, web.tls
        return protocol, None if web.tls is None else web.tls.context


def ending_signals() -> list[signal.Signals]:
    """Signals that end the server, without those that nohup ignores."""
    every = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    return [number for number in every if signal.getsignal(number) is not signal.SIG_IGN]


def end_on_signals(end: Callable[[], None]) -> None:
    """Call `end` on these signals until the server runs, which handles them itself."""
    for number in ending_signals():
        signal.signal(number, lambda *_: end())
