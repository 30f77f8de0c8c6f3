"""Connections that say nothing, and peers that hold many."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from pathlib import Path

from sexton.web.connections import MOST_OF_ONE
from tests.explorer.server.asking import Running, stand_in, started
from tests.record.running import wait_until

HURRIED = """
import runpy, sys
import sexton.web.connections as connections
connections.REQUEST_S = connections.ANSWER_S = float(sys.argv.pop())
runpy.run_module("tests.explorer.server.stand_in", run_name="__main__")
"""


ASK = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


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


def test_halves_from_many_addresses_lock_nobody_out_either() -> None:
    """Each is closed after ten seconds, and comes again."""
    with stand_in() as server, contextlib.ExitStack() as held:
        for number in range(3 * (MOST_OF_ONE - 1)):
            source = f"127.0.0.{2 + number % 3}", 0
            half = held.enter_context(
                socket.create_connection(("127.0.0.1", server.port), 20, source)
            )
            half.sendall(b"GET / HTTP/1.1\r\nHost: local")
        for _ in range(5):
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


def test_a_client_that_does_not_read_its_answer_is_let_go() -> None:
    """Its answer would stay in memory, and its connection open, for as long as it likes."""
    with hurried(0.3) as server, contextlib.closing(socket.socket()) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        end.connect(("127.0.0.1", server.port))
        end.sendall(ASK * 400)  # 10 MB of answers: more than the kernel keeps for us
        wait_until(lambda: server_end(server, end) != ESTABLISHED, 60)


ESTABLISHED = "01"


def server_end(server: Running, end: socket.socket) -> str:
    """The state of the server's end of a connection, as the kernel numbers them."""
    pair = [f"{port:04X}" for port in (server.port, end.getsockname()[1])]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, state = line.split()[1:4]
        if [local.partition(":")[2], remote.partition(":")[2]] == pair:
            return state
    return ""


def test_a_client_that_reads_slowly_but_reads_gets_all_of_it() -> None:
    with hurried(0.3) as server, contextlib.closing(socket.socket()) as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        end.connect(("127.0.0.1", server.port))
        end.settimeout(20)
        number, got = 40, 0
        end.sendall(ASK * (number - 1) + ASK[:-2] + b"Connection: close\r\n\r\n")
        begin = time.monotonic()
        while part := end.recv(32 << 10):
            got += len(part)
            if time.monotonic() - begin < 0.5:  # for a while, not faster than it must
                time.sleep(0.01)
        assert got > number * len(server.get("/openapi.json").sent)
