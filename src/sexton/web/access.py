"""Applies a web configuration to every request: validity, rate limit, password, headers.

Before the guard (`sexton.web.guard`), which learns here that a client has authenticated: then it
needs no token. Plain ASGI, as the guard.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterable

from sexton.web.config import WebConfig
from sexton.web.connections import peer_of
from sexton.web.guard import (
    AUTHENTICATED,
    App,
    Message,
    Receive,
    Refusal,
    Scope,
    Send,
    header_values,
    refuse,
)
from sexton.web.passwords import Busy, Passwords
from sexton.web.settings import Rate

_AGAIN = ((b"retry-after", b"1"),)
_ASK = ((b"www-authenticate", b'Basic realm="sexton", charset="UTF-8"'),)


class Access:
    """Calls `app` for requests that the web configuration admits."""

    def __init__(self, app: App, web: WebConfig) -> None:
        self._app = app
        self._web = web
        self._passwords = Passwords()
        self._bucket = Bucket()

    def close(self) -> None:
        """Drop passwords that wait to be checked."""
        self._passwords.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._web.look()

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._missing(message)]
            await send(message)

        refusal = await self._refusal(scope)
        if refusal is None:
            scope[AUTHENTICATED] = self._web.authenticates
            await self._app(scope, receive, send_with_headers)
        else:
            await refuse(refusal, send_with_headers)

    async def _refusal(self, scope: Scope) -> Refusal | None:
        if self._web.failure:
            return Refusal(500, "the web configuration is invalid; standard error has the reason")
        settings = self._web.settings
        if settings.rate is not None and not self._bucket.take(settings.rate):
            return Refusal(429, "rate limit exceeded", _AGAIN)
        if not settings.users:
            return None
        given = credentials(scope)
        if given is None:
            return Refusal(401, "user and password required", _ASK)
        if self._passwords.knows(settings.users.get(given[0]), *given):
            return None
        try:
            peer = peer_of(scope.get("client"))
            if await self._passwords.check(settings.users, *given, peer):
                return None
        except Busy:
            return Refusal(503, "too many passwords are being checked; retry", _AGAIN)
        return Refusal(401, "wrong user or password", _ASK)

    def _missing(self, message: Message) -> Iterable[tuple[bytes, bytes]]:
        """The configured headers; a policy is added to one that is there, which can only narrow."""
        given = {key.lower() for key, _ in message.get("headers", ())}
        for name, value in self._web.settings.headers:
            key = name.lower().encode()
            if key not in given or key == b"content-security-policy":
                yield key, value.encode()


class Bucket:
    """A token bucket."""

    def __init__(self) -> None:
        self._rate: Rate | None = None
        self._left = 0.0
        self._at = 0.0

    def take(self, rate: Rate) -> bool:
        """Whether one more request is allowed now."""
        now = time.monotonic()
        if rate != self._rate:
            self._rate, self._left = rate, float(rate.burst)
        else:
            self._left = min(self._left + (now - self._at) / rate.interval_s, float(rate.burst))
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def credentials(scope: Scope) -> tuple[str, bytes] | None:
    """User and password of ``Authorization: Basic``; `None` if there are none."""
    found = header_values(scope, b"authorization")
    if len(found) != 1:
        return None
    kind, _, encoded = found[0].partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True)
        user, colon, password = text.partition(b":")
        return (user.decode("utf-8"), password) if colon else None
    except (binascii.Error, ValueError):
        return None
