"""Checks passwords against bcrypt hashes, which costs 50 ms and more on purpose.

A password that was right is known from then on by a keyed hash, so that a scrape does not pay that
again. What is not known is checked by one thread, one at a time, with a pause after each wrong one:
a flood of wrong passwords takes a fifth of a core, and waits in a queue in which one address has
few places. A user who does not exist costs as much as one who does.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

#: Passwords that were right; a user has one or, while it is changed, two.
MOST_KNOWN = 256
#: Checks that wait, of all and of one address.
MOST_WAITING, MOST_OF_ONE = 8, 2
#: A wrong password is followed by a pause of so many times its cost.
REST, MOST_REST_S = 4.0, 2.0
#: bcrypt reads no more of a password.
_MOST_BYTES = 72
#: A hash that no password has: of an unknown user, with the cost of the known ones.
_NOBODY = "abcdefghijklmnopqrstuu" + 31 * "."


class Busy(Exception):
    """Too many passwords wait to be checked."""


class Passwords:
    """The passwords of one server. Used from one event loop."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._turn = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sexton-password")
        self._waiting: Counter[str] = Counter()
        self._rest_until = 0.0

    def knows(self, hashed: str | None, user: str, password: bytes) -> bool:
        """Whether this password was right for this hash before."""
        if hashed is None:
            return False
        key = self._key(hashed, user, password)
        if key not in self._known:
            return False
        self._known.move_to_end(key)
        return True

    async def check(self, users: Mapping[str, str], user: str, password: bytes, peer: str) -> bool:
        """Whether this password, which is not known yet, is that of the user; `Busy` if too many
        are waiting."""
        hashed = users.get(user)
        if self._waiting[peer] >= MOST_OF_ONE or self._waiting.total() >= MOST_WAITING:
            raise Busy
        self._waiting[peer] += 1
        try:
            async with self._turn:
                if self.knows(hashed, user, password):  # it was checked while this one waited
                    return True
                await asyncio.sleep(self._rest_until - time.monotonic())
                right = await self._compare(hashed or _nobody(users), password)
                if right and hashed is not None:
                    self._remember(self._key(hashed, user, password))
                return right and hashed is not None
        finally:
            self._waiting[peer] -= 1
            if not self._waiting[peer]:
                del self._waiting[peer]

    def close(self) -> None:
        """Drop what waits."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _compare(self, hashed: str, password: bytes) -> bool:
        import bcrypt  # only servers with users need it

        begin = time.monotonic()
        loop = asyncio.get_running_loop()
        arguments = password[:_MOST_BYTES], hashed.encode()
        right = await loop.run_in_executor(self._thread, bcrypt.checkpw, *arguments)
        if not right:
            now = time.monotonic()
            self._rest_until = now + min(REST * (now - begin), MOST_REST_S)
        return right

    def _remember(self, key: bytes) -> None:
        self._known[key] = None
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    def _key(self, hashed: str, user: str, password: bytes) -> bytes:
        """Neither the password nor anything that can be tried against it outside this process."""
        parts = hashed.encode(), user.encode(), password
        content = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.new(self._secret, content, hashlib.sha256).digest()


def _nobody(users: Mapping[str, str]) -> str:
    """A hash that costs as much as that of any user."""
    return f"$2b${max((hashed[4:6] for hashed in users.values()), default='10')}${_NOBODY}"
