"""The process that serves a recording's metrics, and its page, on one port.

===================  ==========================================================
``/metrics``         Prometheus' text format or OpenMetrics, by Accept
``/runbooks/NAME``   the page of a detector, for alerts: HTML or text, by Accept
everything else      the explorer
===================  ==========================================================

One guard (`sexton.web`) is before all of it, with the users and certificates of the web
configuration. Without users, a page that other machines can reach needs the token that is printed
at the start; metrics and runbooks do not, since Prometheus can send none.
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sexton.detect.custom_patterns import PREFIX
from sexton.detect.registry import detector_of
from sexton.explorer.server.api import Site as Pages
from sexton.explorer.server.app import Explorer
from sexton.explorer.tiles.view import View
from sexton.export import METRICS
from sexton.export.exporter import Exporter
from sexton.export.pace import Pace
from sexton.reports.runbook import (
    index_html,
    index_text,
    pattern_html,
    pattern_text,
    runbook_html,
    runbook_style,
    runbook_text,
)
from sexton.sandbox import confine, limits_for
from sexton.store.layout import is_locked, require_recording
from sexton.web.address import Address, door_of
from sexton.web.guard import App, Guard, Receive, Scope, Send
from sexton.web.server import Server, end_on_signals

if TYPE_CHECKING:
    from sexton.web.config import WebConfig

RUNBOOKS = "/runbooks/"
_STYLE = "style.css"
_PATTERN = re.compile(PREFIX + r"[a-z][a-z0-9_]{0,39}", re.ASCII)
_SELDOM = 50_000


def is_scraped(path: str) -> bool:
    """Whether a path needs no token: Prometheus sends none, and neither does a link in an alert. No
    runbook says anything about the node."""
    return path == METRICS or path.startswith(RUNBOOKS)


class Metrics:
    """Answers ``/metrics`` and ``/runbooks/``, and passes everything else to `page`."""

    def __init__(self, scrape: Callable[[str, bool], tuple[bytes, str]], page: App) -> None:
        self._scrape = scrape
        self._page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if not is_scraped(path):
            await self._page(scope, receive, send)
        elif path == METRICS:
            await self._metrics(scope, send)
        else:
            accept = dict(scope["headers"]).get(b"accept", b"")
            await _runbook(path.removeprefix(RUNBOOKS), send, html=b"text/html" in accept)

    async def _metrics(self, scope: Scope, send: Send) -> None:
        given = {name: value.decode("latin-1") for name, value in scope["headers"]}
        gzipped = _takes_gzip(given.get(b"accept-encoding", ""))
        content, kind = self._scrape(given.get(b"accept", ""), gzipped)
        headers = {b"content-type": kind.encode(), b"vary": b"accept, accept-encoding"}
        if gzipped:
            headers[b"content-encoding"] = b"gzip"
        await _send(send, 200, content, headers)


def _takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header names gzip, and not with the weight 0.

    >>> [_takes_gzip(each) for each in ("deflate, GZIP;q=0.5", "gzip;q=0, br", "x-gzip", "")]
    [True, False, False, False]
    """
    for each in accepted.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() == "gzip":
            return weight.strip().removeprefix("q=").strip("0.") != "" or not weight
    return False


async def _runbook(name: str, send: Send, *, html: bool) -> None:
    known = detector_of(name)
    if name == _STYLE:
        await _send(send, 200, runbook_style().encode(), {b"content-type": _type("css")})
        return
    if known is not None:
        text = runbook_html(known) if html else runbook_text(known)
    elif _PATTERN.fullmatch(name):
        text = pattern_html(name) if html else pattern_text(name)
    elif not name:
        text = index_html() if html else index_text()
    else:
        await _send(send, 404, b"no such detector; /runbooks/ lists them\n")
        return
    headers = {b"content-type": _type("html" if html else "plain"), b"vary": b"accept"}
    await _send(send, 200, text.encode("utf-8", "replace"), headers)


def _type(kind: str) -> bytes:
    return f"text/{kind}; charset=utf-8".encode()


async def _send(
    send: Send, status: int, content: bytes, headers: Mapping[bytes, bytes] | None = None
) -> None:
    """HEAD is answered without the content by the server."""
    found = {
        b"content-type": _type("plain"),
        **(headers or {}),
        b"content-length": str(len(content)).encode(),
    }
    await send({"type": "http.response.start", "status": status, "headers": list(found.items())})
    await send({"type": "http.response.body", "body": content})


class Site(NamedTuple):
    """What is served, where, and by which rules; `said` gets the page's URL. A `token` that was
    given is not in it."""

    directory: Path
    address: Address
    web: WebConfig | None
    said: Callable[[str], None]
    token: str | None = None
    pace: Pace = Pace()


def serve(site: Site) -> int:
    """Serve until a signal."""
    listening, name, host = site.address
    require_recording(site.directory)
    growing = is_locked(site.directory)
    confine(limits_for(site.directory, growing=growing)._replace(cpu_s=None))
    os.register_at_fork(after_in_child=listening.close)  # workers serve no clients
    gc.set_threshold(_SELDOM)  # neither metrics nor tiles make reference cycles
    exporter = Exporter(site.directory, site.pace)
    view = View.open(site.directory)
    view.fork()  # no thread is running yet
    exporter.count(view.usage)
    door, url = door_of(host, (listening, name), site.web, site.token, is_scraped)
    explorer = Explorer(Pages(view, secrets.token_hex(8)), door)
    metrics = Guard(Metrics(exporter.scrape, explorer.pages), door)
    server = Server(metrics, explorer.close, site.web)
    end_on_signals(server.end)
    site.said(url)
    with ThreadPoolExecutor(1, "sexton-metrics") as pool:
        running = pool.submit(exporter.run)
        running.add_done_callback(lambda _: server.end())
        asyncio.run(server.serve([listening]))
        exporter.stop()
        running.result()
    exporter.close()
    return 0
