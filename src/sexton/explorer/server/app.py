"""The ASGI application: the API's routes, the page's files, live updates, behind the guard.

Requests run on thread pools: tiles take milliseconds and an explanation seconds, so each kind has
its own threads and a bounded queue. A full queue answers 503. A job whose client disconnects before
it starts is dropped.

``/api/live`` sends server-sent events: ``data: {"end": 1794737700.0, "live": true, "lanes": 11}``
whenever the recording grows, and a last one with ``false`` when the recorder stops. Slow clients
miss intermediate events, never the last one.

Only this module, `server` and `sexton.web` need the web extra.
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
from sexton.explorer.server.openapi import description
from sexton.explorer.server.query import Refused, Values, read_path, read_query
from sexton.explorer.server.static import StaticFiles
from sexton.explorer.tiles.processes import Unanswered
from sexton.model.text import printable
from sexton.web.guard import App, Door, Guard

JSON = "application/json"
_STATUS_OF = ((StoreError, 404), (CommandError, 422), (Unanswered, 503))
Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")
Gone = Callable[[], Awaitable[object]]
#: Samples come every second; polling more often shows nothing new.
LOOK_S = 1.0
#: Interval of keep-alive comments, so that either side notices a dead connection.
REMIND_S = 15.0
#: Concurrent live connections.
MOST = 32
_REMINDER = b": keep-alive\n\n"


class Now(NamedTuple):
    """The end of the recording, whether a recorder runs, and the number of lanes with data."""

    end: float
    live: bool
    lanes: int

    @property
    def event(self) -> bytes:
        return b"data: " + json.dumps(self._asdict()).encode() + b"\n\n"


class Live:
    """Polls `look` once a second while clients are connected, and sends every change to all."""

    def __init__(self, look: Callable[[], Awaitable[Now | None]]) -> None:
        self._look = look
        self._changed = asyncio.Condition()
        self._now: Now | None = None
        self._watchers = 0
        self._looking: asyncio.Task[None] | None = None
        self._closing = False

    def admit(self) -> None:
        """Refuse a client beyond the limit, before the response begins."""
        if self._watchers >= MOST:
            raise Refused(f"{MOST} pages are already following this recording", 503)

    async def events(self, now: Now) -> AsyncIterator[bytes]:
        """The events for one client, beginning with `now`."""
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
        """End all streams."""
        self._closing = True
        if self._looking is not None:
            self._looking.cancel()
        async with self._changed:
            self._changed.notify_all()

    async def _after(self, seen: Now) -> Now | None:
        """The next state that differs from `seen`; `None` when a keep-alive is due."""
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
            except SextonError:  # requests for the data itself report it
                continue
            if now is not None and now != self._now:
                async with self._changed:
                    self._now = now
                    self._changed.notify_all()


class WorkerPool:
    """Some threads, and at most `waiting` jobs queued for them."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = threads + waiting
        self._counting = threading.Lock()
        #: Running and queued jobs, including those whose client has disconnected.
        self.jobs = 0

    async def do(self, job: Callable[[], T], gone: Gone) -> T:
        """The result of `job`; `gone` returns when the client disconnects."""
        with self._counting:
            if self.jobs >= self._most:
                raise Refused(f"{self.jobs} such requests are in progress; retry", 503)
            self.jobs += 1
        started = self._pool.submit(job)
        started.add_done_callback(self._ended)
        task = asyncio.wrap_future(started)
        leaving = asyncio.ensure_future(gone())
        either: set[asyncio.Future[Any]] = {task, leaving}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                task.cancel()  # a running job continues, and counts until it ends
                raise Refused("client disconnected", 503)
            return task.result()
        finally:
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving

    def _ended(self, _job: object) -> None:
        with self._counting:
            self.jobs -= 1

    def close(self) -> None:
        """Drop queued jobs; do not wait for running ones."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class Explorer:
    """Serves one recording. `app` is the ASGI application; `close` ends all streams."""

    def __init__(self, site: Site, door: Door, static: StaticFiles | None = None) -> None:
        self._site = site
        self._static = StaticFiles() if static is None else static
        # A request that waits for a lane to be built must not delay other lanes' tiles.
        self._pools = {
            TILES: WorkerPool("sexton-tiles", threads=8, waiting=64),
            FLAMES: WorkerPool("sexton-flames", threads=2, waiting=4),
            STORIES: WorkerPool("sexton-explain", threads=2, waiting=4),
        }
        self._watch = WorkerPool("sexton-live", threads=1, waiting=64)
        self._ending = threading.Event()
        self._live: Live | None = None
        self.routes = list(self._routes())
        inner = Starlette(
            routes=self.routes,
            exception_handlers={
                Refused: _error_response,
                SextonError: _error_response,
                HTTPException: _error_response,
                MemoryError: _too_large,
                500: _bug,
            },
        )
        inner.router.redirect_slashes = False
        #: Without a guard, for a server that guards more than these pages.
        self.pages: App = inner
        self.app = Guard(inner, door)

    async def close(self) -> None:
        self._ending.set()
        if self._live is not None:
            await self._live.close()
        for pool in (*self._pools.values(), self._watch):
            pool.close()

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

        # A quick partial result does not wait behind slow requests.
        pool = self._pools[TILES if values.get("quick") else endpoint.pool]
        return _response(await pool.do(make, gone), request)

    async def _description(self, request: Request) -> Response:
        read_query(request.scope["query_string"], ())
        content = json_bytes(description())
        return _response(body_of(content, JSON, AGAIN, _gzipped(request)), request)

    async def _file(self, request: Request) -> Response:
        """Look up `raw_path`, which is not percent-decoded."""
        path = request.scope.get("raw_path", b"").partition(b"?")[0].decode("latin-1")
        found = self._static.get(path, _gzipped(request))
        if found is None:
            raise Refused("not found", 404)
        return _response(found, request)

    async def _follow(self, request: Request) -> Response:
        read_query(request.scope["query_string"], ())
        now = await self._watch.do(self._look, partial(_gone, request))
        if now is None or not now.live:
            raise Refused("no recorder is running on this recording", 404)
        if self._live is None:
            self._live = Live(partial(self._watch.do, self._look, _never))
        self._live.admit()
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        events: AsyncIterator[bytes] = self._live.events(now)
        return StreamingResponse(events, media_type="text/event-stream")

    def _look(self) -> Now | None:
        """The recording's current state; `None` before its first sample."""
        view = self._site.view
        view.refresh()
        span = view.span
        lanes = len(self._site.about()["lanes"])
        return None if span is None else Now(span[1], view.live, lanes)


def _route(path: str, handler: Handler) -> Route:
    return Route(path, handler, methods=["GET"])  # Starlette adds HEAD, and answers 405 to others


async def _never() -> None:
    """Never returns: there is no client to disconnect."""
    await asyncio.Event().wait()


async def _gone(request: Request) -> None:
    """Returns when the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _gzipped(request: Request) -> bool:
    return takes_gzip(request.headers.get("accept-encoding", ""))


def _response(body: Body, request: Request) -> Response:
    known = request.headers.get("if-none-match")
    if known is not None and etag_matches(body.headers["etag"], known):
        kept = ("etag", "cache-control", "vary")
        return Response(status_code=304, headers={name: body.headers[name] for name in kept})
    return Response(body.content, headers=dict(body.headers))


async def _error_response(_: Request, error: Exception) -> Response:
    """Every error is one line of JSON."""
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


async def _too_large(_: Request, __: Exception) -> Response:
    """More memory than reading this recording may take."""
    return _error(503, "not enough memory for this part of the recording", {})


async def _bug(_: Request, error: Exception) -> Response:
    """An internal error: details go to stderr, the client gets the location only."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename.rpartition('/')[2]} line {place.lineno}"
    what = printable(f"{type(error).__name__}: {error}")
    print(f"sexton: internal error: {what} ({where})", file=sys.stderr, flush=True)
    return _error(500, f"internal error at {where}", {})


def _error(status: int, words: str, headers: dict[str, Any]) -> Response:
    line = " ".join(printable(words).split())
    return Response(json_bytes({"error": line}), status, headers, JSON)
