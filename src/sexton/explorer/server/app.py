"""The ASGI application: routes of `api.ENDPOINTS`, the page's files, the guard before all.

Only this module and `server` need the web extra.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from sexton.errors import CommandError, SextonError, StoreError
from sexton.explorer.server.api import ENDPOINTS, FLAMES, STORIES, TILES, Endpoint, Site
from sexton.explorer.server.documents import (
    AGAIN,
    Body,
    body_of,
    etag_matches,
    json_bytes,
    takes_gzip,
)
from sexton.explorer.server.guard import Door, Guard
from sexton.explorer.server.openapi import description
from sexton.explorer.server.query import Refused, Values, read_path, read_query
from sexton.explorer.server.static import StaticFiles
from sexton.explorer.tiles.processes import Unanswered
from sexton.model.text import printable

JSON = "application/json"
_STATUS_OF = ((StoreError, 404), (CommandError, 422), (Unanswered, 503))
Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")
Gone = Callable[[], Awaitable[object]]
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


class Explorer:
    """One recording, served. `app` is what a server runs; `close` lets everybody go."""

    def __init__(self, site: Site, door: Door, static: StaticFiles | None = None) -> None:
        self._site = site
        self._static = StaticFiles() if static is None else static
        # One that waits for a lane to be built must not hold up the tiles of another.
        self._benches = {
            TILES: Bench("sexton-tiles", threads=8, waiting=64),
            FLAMES: Bench("sexton-flames", threads=2, waiting=4),
            STORIES: Bench("sexton-explain", threads=2, waiting=4),
        }
        self._watch = Bench("sexton-live", threads=1, waiting=64)
        self._ending = threading.Event()
        self._live: Live | None = None
        self.routes = list(self._routes())
        inner = Starlette(
            routes=self.routes,
            exception_handlers={
                Refused: _told,
                SextonError: _told,
                HTTPException: _told,
                500: _bug,
            },
        )
        inner.router.redirect_slashes = False
        self.app = Guard(inner, door)

    async def close(self) -> None:
        self._ending.set()
        if self._live is not None:
            await self._live.close()
        for bench in (*self._benches.values(), self._watch):
            bench.close()

    def _routes(self) -> Iterable[BaseRoute]:
        for endpoint in ENDPOINTS:
            yield _route(endpoint.path, partial(self._answer, endpoint))
        yield _route("/api/live", self._follow)
        yield _route("/openapi.json", self._description)
        yield _route("/{path:path}", self._file)

    async def _answer(self, endpoint: Endpoint, request: Request) -> Response:
        values: Values = {
            **read_path(request.path_params, endpoint.parameters),
            **read_query(request.scope["query_string"], endpoint.parameters),
        }
        gzipped = _gzipped(request)

        left = threading.Event()
        site = replace(self._site, stop=lambda: left.is_set() or self._ending.is_set())

        def make() -> Body:
            made = endpoint.answer(site, values)
            return body_of(json_bytes(made.document), JSON, made.cache, gzipped)

        async def gone() -> None:
            await _gone(request)
            left.set()

        # A first look is quick, and is not to wait for those that are not.
        bench = self._benches[TILES if values.get("quick") else endpoint.bench]
        return _response(await bench.do(make, gone), request)

    async def _description(self, request: Request) -> Response:
        read_query(request.scope["query_string"], ())
        content = json_bytes(description())
        return _response(body_of(content, JSON, AGAIN, _gzipped(request)), request)

    async def _file(self, request: Request) -> Response:
        """`raw_path` has no escapes undone: what was asked for is what is looked up."""
        path = request.scope.get("raw_path", b"").partition(b"?")[0].decode("latin-1")
        found = self._static.get(path, _gzipped(request))
        if found is None:
            raise Refused("there is nothing here by that name", 404)
        return _response(found, request)

    async def _follow(self, request: Request) -> Response:
        read_query(request.scope["query_string"], ())
        now = await self._watch.do(self._look, partial(_gone, request))
        if now is None or not now.live:
            raise Refused("nobody is recording here: this is all there is", 404)
        if self._live is None:
            self._live = Live(partial(self._watch.do, self._look, _never))
        self._live.admit()
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        events: AsyncIterator[bytes] = self._live.events(now)
        return StreamingResponse(events, media_type="text/event-stream")

    def _look(self) -> Now | None:
        """Where the recording ends by now; `None` as long as it has not begun."""
        view = self._site.view
        view.refresh()
        span = view.span
        lanes = len(self._site.about()["lanes"])
        return None if span is None else Now(span[1], view.live, lanes)


def _route(path: str, handler: Handler) -> Route:
    return Route(path, handler, methods=["GET"])  # Starlette adds HEAD, and answers 405 to others


async def _never() -> None:
    """The recording itself is never gone."""
    await asyncio.Event().wait()


async def _gone(request: Request) -> None:
    """Comes back when whoever asked has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _gzipped(request: Request) -> bool:
    return takes_gzip(request.headers.get("accept-encoding", ""))


def _response(body: Body, request: Request) -> Response:
    asked = request.headers.get("if-none-match")
    if asked is not None and etag_matches(body.headers["etag"], asked):
        kept = ("etag", "cache-control", "vary")
        return Response(status_code=304, headers={name: body.headers[name] for name in kept})
    return Response(body.content, headers=dict(body.headers))


async def _told(_: Request, error: Exception) -> Response:
    """Every refusal is one line of JSON."""
    headers: dict[str, str] = {}
    if isinstance(error, HTTPException):
        status, words = error.status_code, error.detail
        headers |= error.headers or {}
    elif isinstance(error, Refused):
        status, words = error.status, str(error)
    else:
        status = next((code for kind, code in _STATUS_OF if isinstance(error, kind)), 422)
        words = str(error)
    if status == 503:
        headers["retry-after"] = "1"
    return _error(status, words, headers)


async def _bug(_: Request, error: Exception) -> Response:
    """Ours: told where the server was started, and no more than that it is one to the page."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename.rpartition('/')[2]} line {place.lineno}"
    what = printable(f"{type(error).__name__}: {error}")
    print(f"sexton: a bug of its own: {what} ({where})", file=sys.stderr, flush=True)
    return _error(500, f"a bug of Sexton's own, at {where}", {})


def _error(status: int, words: str, headers: dict[str, Any]) -> Response:
    line = " ".join(printable(words).split())
    return Response(json_bytes({"error": line}), status, headers, JSON)
