"""A small server in a process of its own, by the code that Sexton's servers run, and its clients.

``python -m tests.web.serving --listen ADDR [--web FILE]`` answers /metrics, which is scraped, and
a page at /. It confines itself as `sexton serve` does.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import http.client
import ssl
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sexton.web.guard import Guard, Receive, Scope, Send
from tests.explorer.server.asking import Running, started
from tests.web.certificates import Authority, Pair

#: How long Prometheus waits for a scrape by default.
SCRAPE_S = 10
METRICS = b"# TYPE answered gauge\nanswered 1\n"


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Server:
    """A running server, and what it has said on standard error."""

    def __init__(self, running: Running) -> None:
        self.running, self.port = running, running.port
        self.said: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.running.process.stderr is not None
        for line in self.running.process.stderr:
            self.said.append(line.decode())

    def cpu_s(self) -> float:
        """CPU time of the process so far."""
        fields = (
            Path(f"/proc/{self.running.process.pid}/stat").read_text().rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / 100

    def ask(
        self,
        path: str = "/metrics",
        tls: ssl.SSLContext | None = None,
        source: str = "127.0.0.1",
        **headers: str,
    ) -> Answer:
        with contextlib.closing(self.connection(tls, source)) as connection:
            return asked(connection, path, **headers)

    def connection(
        self, tls: ssl.SSLContext | None = None, source: str = "127.0.0.1"
    ) -> http.client.HTTPConnection:
        where = "127.0.0.1", self.port
        if tls is None:
            return http.client.HTTPConnection(*where, timeout=SCRAPE_S, source_address=(source, 0))
        return http.client.HTTPSConnection(
            *where, timeout=SCRAPE_S, context=tls, source_address=(source, 0)
        )


def asked(connection: http.client.HTTPConnection, path: str, **headers: str) -> Answer:
    connection.request(
        "GET", path, headers={name.replace("_", "-"): headers[name] for name in headers}
    )
    answer = connection.getresponse()
    return Answer(answer.status, answer.headers, answer.read())


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def trusting(authority: Authority, client: Pair | None = None) -> ssl.SSLContext:
    """A client that trusts a CA and has a certificate of its own, or none."""
    context = ssl.create_default_context(cafile=str(authority.pair.cert))
    if client is not None:
        context.load_cert_chain(*client)
    return context


@contextlib.contextmanager
def server(*options: str | Path) -> Iterator[Server]:
    command = (sys.executable, "-m", "tests.web.serving", *map(str, options))
    with started(*command) as running:
        yield Server(running)


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    body = METRICS if scope["path"] == "/metrics" else b"a page\n"
    headers = [(b"content-type", b"text/plain"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> int:
    from sexton import sandbox
    from sexton.web import address, config, connections
    from sexton.web import server as web_server

    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--web")
    parser.add_argument("--grace", type=float, help="seconds that an invalid file is ignored")
    parser.add_argument("--patience", type=float, help="seconds that a handshake may take")
    args = parser.parse_args()
    if args.grace is not None:
        config.GRACE_S = args.grace
    if args.patience is not None:
        connections.REQUEST_S = args.patience
    web = None if args.web is None else config.WebConfig(args.web)
    host, port = address.parse_listen(args.listen)
    bound = address.bind(host, port)
    address.warn_if_open("this node's metrics", bound, web)
    sandbox.expendable()
    sandbox.confine(sandbox.limits_for(__file__)._replace(cpu_s=None))
    door, url = address.door_of(host, bound, web, scraped=lambda path: path == "/metrics")
    running = web_server.Server(Guard(_app, door), web=web)
    print(url, flush=True)
    asyncio.run(running.serve([bound[0]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
