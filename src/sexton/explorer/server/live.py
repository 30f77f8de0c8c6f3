"""Following a recorder: one look a second while somebody watches, told to all as it moves.

Server-sent events: ``data: {"end": 1794737700.0, "live": true, "lanes": 11}`` each time the
recording has grown, a last one with ``false`` when its recorder has ended. A watcher that reads
slowly misses ends, never the last one; nothing is kept for it. One that left is noticed when it is
told something, at the latest with the comment that keeps the line open.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from sexton.errors import SextonError
from sexton.explorer.server.query import Refused

#: Readings come every second; to look more often would show nothing more.
LOOK_S = 1.0
#: A comment this often, so that a line that was cut is noticed by either side.
REMIND_S = 15.0
#: Pages that follow at once.
MOST = 32
_REMINDER = b": still recording\n\n"


class Now(NamedTuple):
    """Where a recording ends, whether somebody records, and of how many lanes there is anything."""

    end: float
    live: bool
    lanes: int

    @property
    def event(self) -> bytes:
        return b"data: " + json.dumps(self._asdict()).encode() + b"\n\n"


class Live:
    """`look` is asked for the recording as it is now."""

    def __init__(self, look: Callable[[], Awaitable[Now | None]]) -> None:
        self._look = look
        self._changed = asyncio.Condition()
        self._now: Now | None = None
        self._watchers = 0
        self._looking: asyncio.Task[None] | None = None
        self._closing = False

    def admit(self) -> None:
        """Before the answer begins: there is room for one more."""
        if self._watchers >= MOST:
            raise Refused(f"{MOST} pages follow this recording already", 503)

    async def events(self, now: Now) -> AsyncIterator[bytes]:
        """For one watcher, beginning with `now`."""
        self._watchers += 1
        try:
            if self._looking is None or self._looking.done():
                self._now = now
                self._looking = asyncio.ensure_future(self._keep_looking())
            yield now.event
            while now.live and not self._closing:
                later = await self._after(now)
                if later is not None:
                    now = later
                    yield now.event
                elif not self._closing:
                    yield _REMINDER
        finally:
            self._watchers -= 1

    async def close(self) -> None:
        """Everybody is let go."""
        self._closing = True
        if self._looking is not None:
            self._looking.cancel()
        async with self._changed:
            self._changed.notify_all()

    async def _after(self, seen: Now) -> Now | None:
        """How it is when it is no longer as it was; `None` when it is time to remind."""
        async with self._changed:
            try:
                async with asyncio.timeout(REMIND_S):
                    await self._changed.wait_for(lambda: self._closing or self._now != seen)
            except TimeoutError:
                return None
        return None if self._closing else self._now

    async def _keep_looking(self) -> None:
        while self._watchers and not self._closing:
            await asyncio.sleep(LOOK_S)
            try:
                now = await self._look()
            except SextonError:  # what is wrong with it is told to whoever asks for a part of it
                continue
            if now is not None and now != self._now:
                async with self._changed:
                    self._now = now
                    self._changed.notify_all()
