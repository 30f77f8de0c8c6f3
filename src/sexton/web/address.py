"""Where a server listens: its socket, its names and URL, and who can reach it.

The socket is bound here, so that a port in use is a one-line error and the printed URL is right
when the kernel chose the port. Apart from the server, whose libraries a recorder that only keeps
the socket must not hold in memory.
"""

from __future__ import annotations

import errno
import re
import secrets
import socket
import sys
from typing import TYPE_CHECKING, NamedTuple

from sexton.errors import CommandError
from sexton.web.guard import Door, is_loopback, nothing_is_scraped, plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from sexton.web.config import WebConfig

_LISTEN = re.compile(
    r"(?:\[([0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%[\w.-]+)?)\]|([\w.-]*)):([0-9]{1,5})", re.ASCII
)


class Address(NamedTuple):
    """The listening socket, the address it is bound to, and the host as it was given."""

    socket: socket.socket
    name: str
    host: str


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
    scraped: Callable[[str], bool] = nothing_is_scraped,
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
