"""Serves a recording: reads it, prints the URL, and runs the server (`sexton.web.server`).

The recording is untrusted input. So the process confines itself (`sexton.sandbox`) once the
socket is bound and before the first byte is read: from then on it opens no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sexton.errors import SextonError
from sexton.explorer.server.api import Site
from sexton.explorer.server.app import Explorer
from sexton.sandbox import confine, limits_for
from sexton.store.layout import is_locked, require_recording
from sexton.web.address import bind, door_of
from sexton.web.server import Server, end_on_signals

if TYPE_CHECKING:
    from sexton.explorer.tiles.view import View
    from sexton.web.config import WebConfig

_SELDOM = 50_000
#: Wait this long for the recording to be read before the URL is printed.
_READ_FIRST_S = 5.0


@dataclass(frozen=True, slots=True)
class Setup:
    """What to serve, and where. `token` is None if none was given.

    `tour` makes a guided tour from the open view. `reading` is entered while the recording is read,
    before the URL is printed.
    """

    directory: Path
    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None
    tour: Callable[[View], Mapping[str, Any]] | None = None
    open: bool = False
    reading: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    web: WebConfig | None = None


def serve(setup: Setup) -> int:
    """Serve until a signal; returns the exit code."""
    bound = bind(setup.host, setup.port)
    show = _browser() if setup.open else None
    require_recording(setup.directory)  # before it is walked for its size
    growing = is_locked(setup.directory)
    confine(limits_for(setup.directory, growing=growing)._replace(cpu_s=None))
    os.register_at_fork(after_in_child=bound[0].close)  # workers do not serve clients
    from sexton.explorer.tiles.view import View

    gc.set_threshold(_SELDOM)  # tiles create no reference cycles
    view = View.open(setup.directory)
    view.fork()
    return serve_view(view, setup, bound, show)


def serve_view(
    view: View,
    setup: Setup,
    bound: tuple[socket.socket, str] | None = None,
    show: Callable[[str], None] | None = None,
) -> int:
    """Serve an open view; a thread reads it. `show` opens a browser."""
    bound = bound or bind(setup.host, setup.port)
    door, address = door_of(setup.host, bound, setup.web, setup.token)
    tour = setup.tour(view) if setup.tour is not None else None
    explorer = Explorer(Site(view, secrets.token_hex(8), tour), door)
    server = Server(explorer.app, explorer.close, setup.web)
    ready = threading.Event()  # everything is read, or the server is to stop

    def end() -> None:
        server.end()
        ready.set()

    end_on_signals(end)  # before this, a signal ends the process as usual
    threading.Thread(target=partial(_warm, view, ready), name="sexton-warm", daemon=True).start()
    with setup.reading():
        ready.wait(_READ_FIRST_S)
    if server.should_exit:
        bound[0].close()
        return 0
    print(address, flush=True)
    if show is not None:
        show(address)
    asyncio.run(server.serve([bound[0]]))
    return 0


def _warm(view: View, ready: threading.Event) -> None:
    """Read all lanes; a lane that fails reports its error when requested."""
    try:
        with contextlib.suppress(SextonError, MemoryError):
            view.warm(ready.set)
    finally:
        ready.set()


def _browser() -> Callable[[str], None] | None:
    """A function that opens a browser; None without a desktop, since a text browser would hide the
    URL. A confined process starts no program, so a child does, which waits for the URL."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        print("sexton: no desktop session; open the URL yourself", file=sys.stderr)
        return None
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.close(writer)
            address = os.read(reader, 4096).decode()
            if address:  # else the server exited before it had one
                import webbrowser

                webbrowser.open(address)
        finally:
            os._exit(0)
    os.close(reader)

    def show(address: str) -> None:
        os.write(writer, address.encode())
        os.close(writer)

    return show
