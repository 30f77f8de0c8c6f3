"""Access control and security headers for every request.

A page on another site must not read a node through its visitor's browser. So the `Host` header must
name this server (this stops DNS rebinding), the request must not come from another site's script
(`Origin`, `Sec-Fetch-Site`), and only GET and HEAD are allowed. If other machines can connect, a
token is required too: once in the printed URL, then in a cookie, or as ``Authorization: Bearer``.
Responses forbid loading from other hosts, inline scripts and framing.

A client that a web configuration has authenticated (`sexton.web.access`) needs no token. Prometheus
can send none and reaches a node by any name, so the paths it scrapes need neither.

Plain ASGI, without a framework; streams pass through unchanged.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

METHODS = ("GET", "HEAD")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ALWAYS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(?::[0-9]{1,5})?")
_LOCAL = "localhost"
#: In a scope: whether the client has shown who it is, by password or certificate.
AUTHENTICATED = "sexton.authenticated"


def nothing_is_scraped(_: str) -> bool:
    """Of a server without metrics."""
    return False


@dataclass(frozen=True, slots=True)
class Door:
    """The server's names besides loopback and its own address; the token, if required; whether a
    path is scraped, which needs no token."""

    names: frozenset[str] = frozenset()
    token: str | None = None
    cookie: str = "sexton"
    scraped: Callable[[str], bool] = nothing_is_scraped


@dataclass(frozen=True, slots=True)
class Refusal:
    """A response that is sent without calling the application."""

    status: int
    words: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Guard:
    """Calls `app` for requests that are allowed."""

    def __init__(self, app: App, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        refusal = refused(scope, self._door)
        if refusal is None:
            await self._app(scope, receive, protected(send))
        else:
            await refuse(refusal, send)


def protected(send: Send) -> Send:
    """`send` with the security headers that a response lacks."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_missing(message)]
        await send(message)

    return send_with_headers


def refused(scope: Scope, door: Door) -> Refusal | None:
    """Why the request is refused; `None` if it is allowed."""
    if scope["method"] not in METHODS:
        allowed = (b"allow", ", ".join(METHODS).encode())
        return Refusal(405, "only GET and HEAD are allowed: the API is read-only", (allowed,))
    host = _only(scope, b"host")
    if host is None or not _ours(host, scope, door):
        return Refusal(403, "the Host header does not name this server")
    if not _same_site(scope, host):
        return Refusal(403, "cross-site requests are not allowed")
    if door.token is None or scope.get(AUTHENTICATED) or door.scraped(scope["path"]):
        return None
    return _without_token(scope, door)


def _without_token(scope: Scope, door: Door) -> Refusal | None:
    given = _query_token(scope)
    if given is not None and _right(given, door):
        # Redirect, so that the token leaves the address bar; the fragment stays in the browser.
        cookie = f"{door.cookie}={door.token}; Path=/; HttpOnly; SameSite=Lax"
        return Refusal(303, "", ((b"location", b"/"), (b"set-cookie", cookie.encode())))
    tokens = [given] if given is not None else [*_bearers(scope), *_cookies(scope, door.cookie)]
    if any(_right(token, door) for token in tokens):
        return None
    words = "token required: open the URL that sexton printed"
    return Refusal(401, words, ((b"www-authenticate", b'Bearer realm="sexton"'),))


def plain(name: str) -> str:
    """A host name or address in canonical form.

    >>> plain("LocalHost."), plain("[::1]"), plain("::ffff:10.0.0.5"), plain("0:0::1")
    ('localhost', '::1', '10.0.0.5', '::1')
    """
    text = name.strip("[]").lower().removesuffix(".")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def is_loopback(name: str) -> bool:
    """Whether the name is a loopback address.

    >>> [is_loopback(each) for each in ("localhost", "127.0.0.9", "[::1]", "10.0.0.1", "a.b")]
    [True, True, True, False, False]
    """
    text = plain(name)
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return text == _LOCAL


def _ours(host: str, scope: Scope, door: Door) -> bool:
    """The port is ignored: through a tunnel it differs. A name that leads here by rebinding has no
    certificate, and its page no password."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name, server = plain(found[1]), scope.get("server")
    if scope.get("scheme") == "https" or scope.get(AUTHENTICATED):
        return True
    if door.scraped(scope["path"]) and _may_scrape(name, server):
        return True
    return is_loopback(name) or name in door.names or bool(server and name == plain(server[0]))


def _may_scrape(name: str, server: tuple[str, int] | None) -> bool:
    """On loopback by any address, as proxies in front send it; from other machines by any name."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return server is not None and not is_loopback(server[0])
    return True


def _same_site(scope: Scope, host: str) -> bool:
    origins = header_values(scope, b"origin")
    if origins:
        origin = urlsplit(origins[0]) if len(origins) == 1 else None
        if origin is None or origin.scheme not in ("http", "https"):
            return False
        if origin.netloc.lower() != host.lower():
            return False
    if set(header_values(scope, b"sec-fetch-site")) <= {"same-origin", "none"}:
        return True  # programs other than browsers send no such header
    # A link on another site may open the page, and nothing else.
    to_page = scope["path"] == "/" and _only(scope, b"sec-fetch-mode") == "navigate"
    return to_page and _only(scope, b"sec-fetch-dest") == "document"


def _right(given: str, door: Door) -> bool:
    return hmac.compare_digest(
        given.encode("utf-8", "surrogateescape"), (door.token or "").encode("utf-8")
    )


def _query_token(scope: Scope) -> str | None:
    """Only the page accepts a token in its URL."""
    if scope["path"] != "/":
        return None
    given = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
    tokens = [value for name, value in given if name == "token"]
    return tokens[0] if len(tokens) == 1 else None


def _bearers(scope: Scope) -> Iterable[str]:
    for value in header_values(scope, b"authorization"):
        kind, _, token = value.partition(" ")
        if kind.lower() == "bearer":
            yield token.strip()


def _cookies(scope: Scope, name: str) -> Iterable[str]:
    for value in header_values(scope, b"cookie"):
        for pair in value.split(";"):
            key, _, token = pair.strip().partition("=")
            if key == name:
                yield token


def header_values(scope: Scope, name: bytes) -> list[str]:
    """The values of a header, in order."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name]


def _only(scope: Scope, name: bytes) -> str | None:
    """The value of a header that was sent exactly once."""
    found = header_values(scope, name)
    return found[0] if len(found) == 1 else None


def _missing(message: Message) -> Iterable[tuple[bytes, bytes]]:
    given = {key.lower() for key, _ in message.get("headers", ())}
    yield from _ALWAYS
    if b"cache-control" not in given:
        yield b"cache-control", b"no-store"


async def refuse(refusal: Refusal, send: Send) -> None:
    """Send a refusal, as a line of JSON."""
    send = protected(send)
    body = json.dumps({"error": refusal.words}).encode() if refusal.words else b""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *refusal.headers,
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
