"""Connections that say nothing, and peers that hold many."""

from __future__ import annotations

import contextlib
import socket
import sys
import time

from sexton.explorer.server.server import MOST_OF_ONE
from tests.explorer.server.asking import Running, stand_in, started

HURRIED = """
import runpy, sys
import sexton.explorer.server.server as server
server.REQUEST_S = float(sys.argv.pop())
runpy.run_module("tests.explorer.server.stand_in", run_name="__main__")
"""


def hurried(seconds: float) -> contextlib.AbstractContextManager[Running]:
    """A server that waits no longer than this for a request."""
    return started(sys.executable, "-c", HURRIED, str(seconds))


def connected(server: Running) -> contextlib.AbstractContextManager[socket.socket]:
    return contextlib.closing(socket.create_connection(("127.0.0.1", server.port), 20))


def test_half_a_request_is_not_waited_for_and_many_lock_nobody_out() -> None:
    """Nobody may hold connections without asking for anything."""
    with hurried(1.0) as server, contextlib.ExitStack() as held:
        halves = []
        for _ in range(MOST_OF_ONE):
            half = held.enter_context(connected(server))
            half.sendall(b"GET / HTTP/1.1\r\nHost: local")
            halves.append(half)
        closed = sum(item.recv(1) == b"" for item in halves)
        assert closed == MOST_OF_ONE
        assert server.get("/").status == 200


def test_one_peer_holds_only_so_many_connections() -> None:
    with stand_in() as server, contextlib.ExitStack() as held:
        ends = []
        for _ in range(MOST_OF_ONE + 20):
            ends.append(held.enter_context(connected(server)))
        for end in ends[-20:]:
            assert end.recv(1) == b""  # closed at once
        ends[0].sendall(b"GET /api/recording HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert ends[0].recv(12) == b"HTTP/1.1 200"


def test_a_connection_that_is_kept_open_may_ask_again_later() -> None:
    with hurried(0.5) as server, connected(server) as end:
        for wait in (0.0, 1.0, 0.3):
            time.sleep(wait)  # longer than a request may take, shorter than one is kept
            end.sendall(b"GET /icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = b""
            while not told.endswith(b"</svg>\n"):
                told += end.recv(1 << 16)
            assert told.startswith(b"HTTP/1.1 200")
        end.sendall(b"GET /icon.svg HTT")
        assert end.recv(1) == b""
