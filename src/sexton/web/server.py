"""The server process: binds the socket, serves it with or without TLS, and stops quickly.

The socket is bound here, so that a port in use is a one-line error and the printed URL is right
when the kernel chose the port. A process may confine itself (`sexton.sandbox`) once it is bound:
from then on no other socket is opened, and changed certificates are still read.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import re
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

import uvicorn

from sexton.errors import CommandError
from sexton.web.access import Access
from sexton.web.connections import LimitedProtocol, Reception
from sexton.web.guard import App, Door, is_loopback, plain

if TYPE_CHECKING:
    import ssl

    from sexton.web.config import WebConfig

#: Concurrent connections; a page uses six.
_MOST_CONNECTIONS = 256
_LISTEN = re.compile(
    r"(?:\[([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?)\]|([\w.-]*)):([0-9]{1,5})", re.ASCII
)


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
                proxy_headers=False,
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_graceful_shutdown=1,
            )
        )
        self._close = close
        self._web = web
        self._reception = Reception(self._begin)
        self._accepting: list[asyncio.Task[None]] = []

    def end(self) -> None:
        """Stop; safe to call from another thread and from a signal handler."""
        self.should_exit = self.force_exit = True

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


def parse_listen(text: str) -> tuple[str, int]:
    """Host and port of an address as Prometheus' exporters write it; an empty host means all.

    >>> parse_listen("127.0.0.1:9643"), parse_listen(":9643"), parse_listen("[::1]:9643")
    (('127.0.0.1', 9643), ('', 9643), ('::1', 9643))
    """
    found = _LISTEN.fullmatch(text)
    if found is None or int(found[3]) > 65535:
        raise CommandError(
            f"invalid address {text[:80]!r}: must be HOST:PORT, :PORT or [IPv6]:PORT,"
            " as in 127.0.0.1:9643"
        )
    return found[1] or found[2] or "", int(found[3])


def bind(host: str, port: int) -> tuple[socket.socket, str]:
    """A listening socket, and the address it is bound to; an empty `host` is every address, of
    IPv6 and IPv4."""
    if host:
        return _bound(host, port)
    try:
        return _bound("::", port)
    except CommandError as error:
        if _errno(error) not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
    return _bound("0.0.0.0", port)


def _errno(error: CommandError) -> int | None:
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None


def _bound(host: str, port: int) -> tuple[socket.socket, str]:
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except (OSError, UnicodeError) as error:
        raise CommandError(f"{shown}: {getattr(error, 'strerror', None) or error}") from None
    family, _, _, _, where = found[0]
    try:
        # asyncio turns Nagle's algorithm off only where it knows that this is TCP.
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        raise CommandError(f"{shown}: {error.strerror}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            only = plain(str(where[0])) != "::"
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(only))
        listening.bind(where)
        listening.listen(128)
    except OSError as error:
        listening.close()
        hint = "; port 0 picks a free one" if error.errno == errno.EADDRINUSE else ""
        raise CommandError(f"{shown}: {error.strerror}{hint}") from error
    return listening, str(where[0])


def names_of(host: str, name: str) -> frozenset[str]:
    """Accepted host names besides loopback; the node's name only where others can connect."""
    if is_loopback(name):
        return frozenset()
    return frozenset({plain(host), plain(name), plain(socket.gethostname())} - {""})


def url_of(host: str, bound: tuple[socket.socket, str], web: WebConfig | None = None) -> str:
    """The URL to print; for a wildcard address, with the node's name."""
    listening, name = bound
    shown = name
    if plain(name) in ("0.0.0.0", "::"):
        shown = socket.gethostname()
    elif not is_loopback(name) or plain(host) == "localhost":
        shown = host
    place = f"[{shown}]" if ":" in shown else shown
    scheme = "http" if web is None or web.tls is None else "https"
    return f"{scheme}://{place}:{listening.getsockname()[1]}/"


def door_of(
    host: str,
    bound: tuple[socket.socket, str],
    web: WebConfig | None,
    token: str | None = None,
    scraped: frozenset[str] = frozenset(),
) -> tuple[Door, str]:
    """The door of a server, and the URL to print. Where others can connect and nothing else says
    who they are, a token is generated; the URL has it."""
    listening, name = bound
    free = is_loopback(name) or (web is not None and web.authenticates) or token is not None
    generated = None if free else secrets.token_urlsafe(24)
    cookie = f"sexton-{listening.getsockname()[1]}"
    door = Door(names_of(host, name), token or generated, cookie, scraped)
    return door, url_of(host, bound, web) + (f"?token={generated}" if generated else "")


def warn_if_open(what: str, bound: tuple[socket.socket, str], web: WebConfig | None) -> None:
    """Warn on standard error if other machines can read `what` without a password or certificate,
    or send passwords that others on the way can read."""
    listening, name = bound
    if is_loopback(name):
        return
    place = f"[{name}]" if ":" in name else name
    place += f":{listening.getsockname()[1]}"
    if web is None or not web.authenticates:
        words = f"anybody who reaches {place} can read {what}; --web.config.file sets TLS and users"
    elif web.tls is None:
        words = f"passwords are sent to {place} unencrypted; tls_server_config encrypts them"
    else:
        return
    print(f"sexton: warning: {words}", file=sys.stderr, flush=True)


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
