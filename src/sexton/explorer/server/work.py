"""Work off the event loop, by few threads, with a bound on what may wait.

Tiles take milliseconds and an explanation seconds: each kind has threads of its own, so that
panning stays quick while somebody waits for a story. Whoever asks when too much waits already is
told to come back. A job whose asker has left before it began is dropped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from sexton.explorer.server.query import Refused

T = TypeVar("T")
Gone = Callable[[], Awaitable[object]]


class Bench:
    """`threads` that work, and at most `waiting` jobs that wait for them."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = threads + waiting
        self._counting = threading.Lock()
        #: Those that work and those that wait, also for somebody who has left.
        self.jobs = 0

    async def do(self, job: Callable[[], T], gone: Gone) -> T:
        """What `job` gives; `gone` comes back when nobody waits for it any more."""
        with self._counting:
            if self.jobs >= self._most:
                raise Refused(f"{self.jobs} such questions are being worked on; try again", 503)
            self.jobs += 1
        started = self._pool.submit(job)
        started.add_done_callback(self._ended)
        task = asyncio.wrap_future(started)
        leaving = asyncio.ensure_future(gone())
        either: set[asyncio.Future[Any]] = {task, leaving}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()  # one that runs already goes on to its end, and counts until then
                raise Refused("nobody waits for this any more", 503)
            return task.result()
        finally:
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving

    def _ended(self, _job: object) -> None:
        with self._counting:
            self.jobs -= 1

    def close(self) -> None:
        """Nobody is waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
