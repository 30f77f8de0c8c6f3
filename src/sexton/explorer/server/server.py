"""The server process: binds the socket, prints the URL, and stops quickly.

The socket is bound here, so that a port in use is a one-line error and the printed URL is right
when the kernel chose the port. Connections without a complete request are closed: uvicorn alone
waits forever for the rest of one, so a few hundred of those would lock everyone out. So are those
whose client does not read its answer.

The recording is untrusted input. So the process confines itself (`sexton.sandbox`) once the
socket is bound and before the first byte is read: from then on it opens no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import signal
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sexton.errors import CommandError, SextonError
from sexton.explorer.server.api import Site
from sexton.explorer.server.app import Explorer
from sexton.explorer.server.guard import Door, is_loopback, plain
from sexton.sandbox import confine, limits_for
from sexton.store.layout import is_locked, require_recording

if TYPE_CHECKING:
    from sexton.explorer.tiles.view import View

#: Concurrent connections; a page uses six.
_MOST_CONNECTIONS = 256
_SELDOM = 50_000
#: A connection is closed if its request takes longer than this.
REQUEST_S = 10.0
#: And if its client reads fewer bytes of an answer than this in this many seconds.
ANSWER_S, LEAST_TAKEN = 20.0, 64 << 10
#: Connections per address; a page uses six, and all users of a tunnel share one address.
MOST_OF_ONE = 128
#: Wait this long for the recording to be read before the URL is printed.
_READ_FIRST_S = 5.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What to serve, and where. `token` is None if none was given.

    `reading` is entered while the recording is read, before the URL is printed.
    """

    directory: Path
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    tour: Mapping[str, Any] | None = None
    open: bool = False
    reading: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext


def serve(setup: Setup) -> int:
    """Serve until a signal; returns the exit code."""
    bound = _bound(setup.host, setup.port)
    show = _browser() if setup.open else None
    require_recording(setup.directory)  # before it is walked for its size
    growing = is_locked(setup.directory)
    confine(limits_for(setup.directory, growing=growing)._replace(cpu_s=None))
    os.register_at_fork(after_in_child=bound[0].close)  # workers do not serve clients
    from sexton.explorer.tiles.view import View

    gc.set_threshold(_SELDOM)  # tiles create no reference cycles
    view = View.open(setup.directory)
    view.fork()
    return serve_view(view, setup, bound, show)


def serve_view(
    view: View,
    setup: Setup,
    bound: tuple[socket.socket, str] | None = None,
    show: Callable[[str], None] | None = None,
) -> int:
    """Serve an open view; a thread reads it. `show` opens a browser."""
    listening, name = bound or _bound(setup.host, setup.port)
    port = listening.getsockname()[1]
    generated = None if setup.token or is_loopback(name) else secrets.token_urlsafe(24)
    door = Door(_names(setup.host, name), setup.token or generated, f"sexton-{port}")
    address = _address(setup.host, name, port) + (f"?token={generated}" if generated else "")
    explorer = Explorer(Site(view, secrets.token_hex(8), setup.tour), door)
    server = _Server(explorer)
    for number in _ours():  # before this, a signal ends the process as usual
        signal.signal(number, lambda *_: server.end())
    warm = partial(_warm, view, server.ready)
    threading.Thread(target=warm, name="sexton-warm", daemon=True).start()
    with setup.reading():
        server.ready.wait(_READ_FIRST_S)
    if server.should_exit:
        listening.close()
        return 0
    print(address, flush=True)
    if show is not None:
        show(address)
    # Malformed requests are not worth a log line.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    asyncio.run(server.serve([listening]))
    return 0


def _warm(view: View, ready: threading.Event) -> None:
    """Read all lanes; a lane that fails reports its error when requested."""
    try:
        with contextlib.suppress(SextonError, MemoryError):
            view.warm(ready.set)
    finally:
        ready.set()


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with timeouts for requests and answers, and a limit per address."""

    _held: ClassVar[Counter[str]] = Counter()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._peer = str(self.client[0]) if self.client else ""
        self._held[self._peer] += 1
        self._waiting: asyncio.TimerHandle | None = None
        self._draining: asyncio.TimerHandle | None = None
        if self._held[self._peer] > MOST_OF_ONE:
            transport.close()
        else:
            self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._rest()
        elif self._waiting is None:  # the start of another request
            self._expect()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.timeout_keep_alive_task is not None:  # keep-alive has its own timer
            self._rest()
        self._drain()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._drain()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        if self._draining is not None:
            self._draining.cancel()
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

    def _drain(self) -> None:
        """Check later how much of the answer the client has read. A closing transport waits for
        its client, too."""
        left: int = self.transport.get_write_buffer_size()
        if left and self._draining is None:
            self._draining = self.loop.call_later(ANSWER_S, self._drained, left)

    def _drained(self, before: int) -> None:
        self._draining = None
        if self.transport.get_write_buffer_size() > max(before - LEAST_TAKEN, 0):
            self.transport.abort()
        else:
            self._drain()

    def _too_slow(self) -> None:
        self._waiting = None
        if not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """Stops at once: streams end, running jobs are dropped."""

    def __init__(self, explorer: Explorer) -> None:
        super().__init__(
            uvicorn.Config(
                explorer.app,
                http=LimitedProtocol,
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_graceful_shutdown=1,
            )
        )
        self._explorer = explorer
        #: Set when everything is read, or when the server is to stop.
        self.ready = threading.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Replaces uvicorn's, which raises the signal again at the end."""
        loop = asyncio.get_running_loop()
        for number in _ours():
            loop.add_signal_handler(number, self.end)
        yield

    def end(self) -> None:
        self.should_exit = self.force_exit = True
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._explorer.close()
        await super().shutdown(sockets)


def read_token(path: str) -> str:
    """The token in a file of one line."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(4097)
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    token = content.strip().decode("latin-1")
    if not 16 <= len(token) <= 4096 or not token.isascii() or not token.isprintable():
        raise CommandError(f"{path}: the token must be one line of 16 to 4,096 ASCII characters")
    if set(token) & set(' ;,"\\'):
        raise CommandError(f'{path}: a token cannot contain any of space ; , " \\')
    return token


def _ours() -> list[signal.Signals]:
    """Signals that end the server, without those that nohup ignores."""
    every = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    return [number for number in every if signal.getsignal(number) is not signal.SIG_IGN]


def _bound(host: str, port: int) -> tuple[socket.socket, str]:
    """A listening socket, and the address it is bound to."""
    shown = f"{host}:{port}"
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except (OSError, UnicodeError) as error:
        raise CommandError(f"{shown}: {getattr(error, 'strerror', None) or error}") from None
    family, _, _, _, where = found[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            only = plain(str(where[0])) != "::"
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only))
        listening.bind(where)
        listening.listen(128)
    except OSError as error:
        listening.close()
        hint = "; --port 0 picks a free one" if error.errno == 98 else ""
        raise CommandError(f"{shown}: {error.strerror}{hint}") from None
    return listening, str(where[0])


def _names(host: str, address: str) -> frozenset[str]:
    """Accepted host names besides loopback; the node's name only where others can connect."""
    if is_loopback(address):
        return frozenset()
    return frozenset({plain(host), plain(address), plain(socket.gethostname())})


def _address(host: str, address: str, port: int) -> str:
    """The URL to print; for a wildcard address, with the node's name."""
    shown = address
    if plain(address) in ("0.0.0.0", "::"):
        shown = socket.gethostname()
    elif not is_loopback(address) or plain(host) == "localhost":
        shown = host
    name = f"[{shown}]" if ":" in shown else shown
    return f"http://{name}:{port}/"


def _browser() -> Callable[[str], None] | None:
    """A function that opens a browser; None without a desktop, since a text browser would hide the
    URL. A confined process starts no program, so a child does, which waits for the URL."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        print("sexton: no desktop session; open the URL yourself", file=sys.stderr)
        return None
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.close(writer)
            address = os.read(reader, 4096).decode()
            if address:  # else the server exited before it had one
                import webbrowser

                webbrowser.open(address)
        finally:
            os._exit(0)
    os.close(reader)

    def show(address: str) -> None:
        os.write(writer, address.encode())
        os.close(writer)

    return show
