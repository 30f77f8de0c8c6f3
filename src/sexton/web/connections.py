"""Connections as the server takes them: who may hold how many, and for how long.

uvicorn alone waits forever for the rest of a request, so a few hundred halves of one would lock
everyone out. Each is let go after some seconds; from several addresses they would come again as
fast, so the oldest gives way to a new connection. So are clients let go that do not read their
answer, and TLS handshakes that do not end: those are counted per address from the first packet on,
and there, too, the oldest gives way.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from email.utils import formatdate
from functools import partial
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import ssl

    from sexton.web.config import WebConfig
    from sexton.web.tls import Tls

#: A connection is closed if its request, or its TLS handshake, takes longer than this.
REQUEST_S = 10.0
#: And if its client reads fewer bytes of an answer than this in this many seconds.
ANSWER_S, LEAST_TAKEN = 20.0, 64 << 10
#: Connections per address; a page uses six, and all users of a tunnel share one address.
MOST_OF_ONE = 128
#: Connections at a time; a page uses six. The one that has owed a request for longest gives way.
MOST_CONNECTIONS = 256
#: TLS handshakes at a time; one takes milliseconds unless its client is slow on purpose.
MOST_HANDSHAKES = 256
#: How long to wait when no file descriptor or memory is left for a connection.
_EXHAUSTED_S = 1.0


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with timeouts for requests and answers."""

    #: Ends the place that this connection takes of its address' share.
    place: ExitStack
    #: The web configuration of the server, if any, and the TLS rules that this connection met.
    web: WebConfig | None = None
    tls: Tls | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._waiting: asyncio.TimerHandle | None = None
        self._draining: asyncio.TimerHandle | None = None
        self._refused = False
        self._owes_since = time.monotonic()
        if self.tls is not None and not self.tls.admits(transport.get_extra_info("peercert")):
            self.refuse()
        else:
            self._expect()

    def data_received(self, data: bytes) -> None:
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self.web is not None:
            self.web.look()
            if self.web.tls is not self.tls:
                self.refuse()  # its client comes back, and is checked by the rules of now
        if self._refused:
            return
        self.server_state.default_headers = [(b"date", formatdate(usegmt=True).encode("ascii"))]
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._rest()
        elif self._waiting is None:  # the start of another request
            self._expect()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._owes_since = time.monotonic()
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
        self.place.close()
        super().connection_lost(exc)

    def owes_since(self) -> float | None:
        """Since when its client owes a request; `None` while one is answered, or at its end."""
        answering = self.cycle is not None and not self.cycle.response_complete
        return None if answering or self.transport.is_closing() else self._owes_since

    def refuse(self) -> None:
        """Close it without an answer."""
        self._refused = True
        self.transport.abort()

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


def make_room(connections: Iterable[LimitedProtocol]) -> None:
    """Close the connection that has owed a request for longest, if one does."""
    owing = [(since, id(each), each) for each in connections if (since := each.owes_since())]
    if owing:
        min(owing)[2].refuse()


class Reception:
    """Accepts connections on a socket and makes each a protocol of its own, behind TLS if asked.

    `begin` makes the protocol and gives the TLS context of now; `None` in its place closes the
    connection at once. A context per connection lets certificates change while the server runs:
    replacing one inside a handshake (SNI) would keep the old rules for client certificates.
    """

    def __init__(
        self, begin: Callable[[], tuple[LimitedProtocol, ssl.SSLContext | None] | None]
    ) -> None:
        self._begin = begin
        self._held: Counter[str] = Counter()
        self._starting: dict[asyncio.Task[None], ExitStack] = {}

    async def accept(self, listening: socket.socket) -> None:
        """Accept until cancelled, or until the socket is closed."""
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while listening.fileno() >= 0:
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno != errno.ECONNABORTED:  # that client has left already
                    await asyncio.sleep(_EXHAUSTED_S)
                continue
            self._take(connection, peer_of(address))
            await asyncio.sleep(0)  # accepting does not wait while connections are queued

    def close(self) -> None:
        """End all handshakes."""
        for task in self._starting:
            task.cancel()

    def _take(self, connection: socket.socket, peer: str) -> None:
        if self._held[peer] >= MOST_OF_ONE:
            connection.close()
            return
        if len(self._starting) >= MOST_HANDSHAKES:
            next(iter(self._starting)).cancel()
        self._held[peer] += 1
        place = ExitStack()
        place.callback(self._let_go, peer)
        task = asyncio.get_running_loop().create_task(self._start(connection, place))
        self._starting[task] = place
        task.add_done_callback(partial(self._started, connection))

    async def _start(self, connection: socket.socket, place: ExitStack) -> None:
        begun = self._begin()
        if begun is None:
            connection.close()
            place.close()
            return
        protocol, context = begun
        protocol.place = place
        limit_s = None if context is None else REQUEST_S
        # A handshake that failed or was ended is no error; asyncio has closed the connection.
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, connection, ssl=context, ssl_handshake_timeout=limit_s
            )
            return
        place.close()

    def _started(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        place = self._starting.pop(task)
        if task.cancelled():  # before it ran
            connection.close()
            place.close()

    def _let_go(self, peer: str) -> None:
        self._held[peer] -= 1
        if self._held[peer] <= 0:
            del self._held[peer]


def peer_of(address: Any) -> str:
    """What counts as one client: an IPv4 address, or the /64 of an IPv6 address.

    >>> peer_of(("10.0.0.5", 1)), peer_of(("::ffff:10.0.0.5", 1, 0, 0)), peer_of(None)
    ('10.0.0.5', '10.0.0.5', '')
    >>> peer_of(("2001:db8::1", 1, 0, 0)) == peer_of(("2001:db8::2", 1, 0, 0))
    True
    """
    if not address:
        return ""
    try:
        found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    except ValueError:
        return str(address[0])
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((found, 64), strict=False))
