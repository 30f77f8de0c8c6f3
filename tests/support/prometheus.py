"""Answers of a real Prometheus, kept in a file: ``python -m tests.support.prometheus URL FILE``.

The file holds every answer that a window of the last minute needed, so that tests read it
through the client's own parsing.
"""

from __future__ import annotations

import gzip
import json
import ssl
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sexton.replay.prometheus.client import Client
from sexton.replay.prometheus.window import window

_SECONDS = 60.0


class Keeping(Client):
    """A client that keeps what it was answered, by its question without times."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.kept: dict[str, Any] = {}

    def _get(self, path: str) -> tuple[int, str, bytes]:
        answer = super()._get(path)
        self.kept[question(path)] = json.loads(answer[2])
        return answer


def question(path: str) -> str:
    """What was asked: the selector, without its time."""
    asked = parse_qs(urlsplit(path).query)
    (text,) = asked.get("match[]") or asked["query"]
    return text.rpartition("[")[0] or text


class Server:
    """Answers every request by a function of its path; on loopback, until the block ends. With the
    paths of a certificate and its key over TLS."""

    def __init__(self, answer: Any, pair: tuple[Path, Path] | None = None) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if pair is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(*pair)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if pair is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Server:
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    headers.setdefault("Content_Type", "application/json")
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def kept(path: Path) -> dict[str, Any]:
    """A file of answers: when it was made, the node's name, and the answers by question."""
    with gzip.open(path) as stream:
        return json.load(stream)


def serving(document: dict[str, Any]) -> Server:
    """A server that gives these answers again."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        send(handler, json.dumps(document["answers"][question(handler.path)]).encode())

    return Server(answer)


if __name__ == "__main__":
    end = time.time()
    with Keeping(sys.argv[1]) as client:
        window(client, "127.0.0.1", end - _SECONDS, end)
    made = {"end": end, "start": end - _SECONDS, "answers": client.kept}
    text = json.dumps(made, separators=(",", ":")).encode()
    Path(sys.argv[2]).write_bytes(gzip.compress(text, mtime=0))
