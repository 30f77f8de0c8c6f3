"""A server in a process of its own, and a client that knows nothing of it but HTTP."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.cli import ENVIRONMENT, SEXTON

ROOT = Path(__file__).parents[3]
STAND_IN = (sys.executable, "-m", "tests.explorer.server.stand_in")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    sent: bytes

    @property
    def body(self) -> bytes:
        """As it was before compression."""
        if self.headers["content-encoding"] == "gzip":
            return gzip.decompress(self.sent)
        return self.sent

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)


@dataclass(frozen=True)
class Running:
    """A server that has said where it is."""

    process: subprocess.Popen[bytes]
    line: str

    @property
    def port(self) -> int:
        port = urlsplit(self.line).port
        assert port is not None
        return port

    def connection(self, timeout_s: float = 30) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)

    def ask(
        self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> Answer:
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path, headers=dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask(path, headers)


@contextlib.contextmanager
def started(*command: str) -> Iterator[Running]:
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        ready, _, _ = select.select([process.stdout], [], [], 60)
        line = process.stdout.readline().decode().strip() if ready else ""
        if not line:
            process.kill()
            raise AssertionError(process.communicate()[1].decode())
        yield Running(process, line)
    finally:
        process.kill()
        process.communicate()


def stand_in(*options: str) -> contextlib.AbstractContextManager[Running]:
    return started(*STAND_IN, *options)


def serving(*arguments: str) -> contextlib.AbstractContextManager[Running]:
    """The real command."""
    return started(*SEXTON, "serve", "--port", "0", *arguments)
