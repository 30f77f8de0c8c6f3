"""A fake API server behind real TLS: it answers what a test wants, as slowly as it wants."""

from __future__ import annotations

import contextlib
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

from sexton.cluster.access import Access, Given, Place
from tests.web.certificates import Authority

Handle = Callable[[BaseHTTPRequestHandler], None]


class Fake(NamedTuple):
    """Where it listens, who signed its certificate, and the requests it has had."""

    place: Place
    authority: Path
    requests: list[tuple[str, str, dict[str, str], bytes]]

    def access(self, token: Path | None = None) -> Access:
        given = Given() if token is None else Given(str(token))
        return Access(self.place, Given(str(self.authority)), given)


@contextlib.contextmanager
def fake_server(folder: Path, handle: Handle, name: str = "IP:127.0.0.1") -> Iterator[Fake]:
    authority = Authority(folder, "authority")
    pair = authority.sign("server", name)
    requests: list[tuple[str, str, dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            requests.append((self.command, self.path, dict(self.headers), content))
            with contextlib.suppress(OSError):  # the client has gone
                handle(self)

        do_GET = do_POST = do_PATCH = _any  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield Fake(Place("127.0.0.1", server.server_port), authority.pair.cert, requests)
    finally:
        server.shutdown()
        server.server_close()


def answering(status: int, content: bytes, **headers: str) -> Handle:
    def handle(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    return handle
