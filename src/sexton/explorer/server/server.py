"""The process around the application: a socket of our own, one line, and a quick end.

The socket is bound here, so that a port that is taken is one line and not a traceback, and so that
the printed address is the true one when the port was left to the kernel.
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

if TYPE_CHECKING:
    from sexton.explorer.tiles.view import View
    from sexton.replay.reader_pool import Crew

#: Connections at once. A page uses six.
_MOST_CONNECTIONS = 256
_SELDOM = 50_000
#: A request is there, or its connection is closed.
REQUEST_S = 10.0
#: Of one address; a page has six, and a tunnel is one address for all who use it.
MOST_OF_ONE = 128
#: A page that is opened when all is read is there at once; what takes longer is read on meanwhile.
_READ_FIRST_S = 5.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What to serve, where, to whom. `token` is `None` where none was given; `tour` guides.

    `reading` is entered while the recording is read, before the address is told.
    """

    directory: Path
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    tour: Mapping[str, Any] | None = None
    open: bool = False
    reading: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext


def serve(setup: Setup) -> int:
    """Until it is told to end; the exit code."""
    from sexton.explorer.tiles.view import View

    gc.set_threshold(_SELDOM)  # tiles make no cycles
    view = View.open(setup.directory)
    view.fork()
    return serve_view(view, setup, view.crew())


def serve_view(view: View, setup: Setup, crew: Crew | None = None) -> int:
    """The same of a view that is open already; `crew` reads it, a thread of ours if `None`."""
    listening, name = _bound(setup.host, setup.port)
    port = listening.getsockname()[1]
    generated = None if setup.token or is_loopback(name) else secrets.token_urlsafe(24)
    door = Door(_names(setup.host, name), setup.token or generated, f"sexton-{port}")
    address = _address(setup.host, name, port) + (f"?token={generated}" if generated else "")
    explorer = Explorer(Site(view, secrets.token_hex(8), setup.tour), door)
    server = _Server(explorer)
    for number in _ours():  # from the line on that says we are there; before it as any command
        signal.signal(number, lambda *_: server.end())
    warm = partial(_warm, view, crew, server.ready)
    threading.Thread(target=warm, name="sexton-warm", daemon=True).start()
    with setup.reading():
        server.ready.wait(_READ_FIRST_S)
    if server.should_exit:
        listening.close()
        return 0
    print(address, flush=True)
    if setup.open:
        _open(address)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # a client's junk is no news
    asyncio.run(server.serve([listening]))
    return 0


def _warm(view: View, crew: Crew | None, ready: threading.Event) -> None:
    """A lane that cannot be built says so to whoever asks for it."""
    try:
        with contextlib.suppress(SextonError), crew or contextlib.nullcontext():
            view.warm(crew)
    finally:
        ready.set()


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


class _Server(uvicorn.Server):
    """Ends at once when asked: whoever still listens is let go, whatever is computed is dropped."""

    def __init__(self, explorer: Explorer) -> None:
        super().__init__(
            uvicorn.Config(
                explorer.app,
                http=Patient,
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
        #: All is read, or it is to end before.
        self.ready = threading.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """In place of uvicorn's, which raises the signal once more when all is over."""
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
    """The one line of a file."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(4097)
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    token = content.strip().decode("latin-1")
    if not 16 <= len(token) <= 4096 or not token.isascii() or not token.isprintable():
        raise CommandError(f"{path}: a token is one line of 16 to 4,096 ASCII characters")
    if set(token) & set(' ;,"\\'):
        raise CommandError(f"{path}: a token has no space, comma, semicolon, quote or backslash")
    return token


def _ours() -> list[signal.Signals]:
    every = signal.SIGINT, signal.SIGTERM, signal.SIGHUP
    return [each for each in every if signal.getsignal(each) is not signal.SIG_IGN]  # nohup


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
        hint = "; --port 0 takes a free one" if error.errno == 98 else ""
        raise CommandError(f"{shown}: {error.strerror}{hint}") from None
    return listening, str(where[0])


def _names(host: str, address: str) -> frozenset[str]:
    """How we may be called besides loopback: a node's name only where others can reach us."""
    if is_loopback(address):
        return frozenset()
    return frozenset({plain(host), plain(address), plain(socket.gethostname())})


def _address(host: str, address: str, port: int) -> str:
    """For people: where every address is ours, the node's name."""
    shown = address
    if plain(address) in ("0.0.0.0", "::"):
        shown = socket.gethostname()
    elif not is_loopback(address) or plain(host) == "localhost":
        shown = host
    name = f"[{shown}]" if ":" in shown else shown
    return f"http://{name}:{port}/"


def _open(address: str) -> None:
    """A browser, where there is a desktop to show one: one in the terminal would hide our line."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        print("sexton: there is no desktop here; open the address yourself", file=sys.stderr)
        return
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
