"""Made nodes that Prometheus scrapes, and a receiver for what Alertmanager sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, NamedTuple

from tests.deploy.prometheus.known import LABELS

#: Detectors of the chain, its root first.
CHAIN = ("crash_looping_unit", "zombie_memcgs", "saturated_core", "starved_napi", "nic_resets")


def series(name: str, value: float, **labels: str) -> str:
    """A line of the text format, of a metric that the exporter serves."""
    assert set(labels) == LABELS[name], name

    def quoted(text: str) -> str:
        text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{text}"'

    inside = ",".join(f"{label}={quoted(text)}" for label, text in labels.items())
    return f"{name}{{{inside}}} {value}\n"


class Names(NamedTuple):
    """What the names on a node are."""

    unit: str = "ecs.service"
    owner: str = "/system.slice/ecs.service"
    task: str = "kubelet"
    nic: str = "eth0"

    @property
    def sentence(self) -> str:
        return (
            f"crash-looping unit {self.unit} → dying memory cgroups → core held in the kernel"
            " → NIC reset"
        )


def healthy(names: Names) -> str:
    return "".join(
        [
            series("sexton_build_info", 1, version="0.1.0"),
            series("sexton_verdict", 0),
            series("sexton_recorder_up", 1),
            series("sexton_recorder_problem", 0),
            series("sexton_memcgs_dying", 40),
            series("sexton_memcgs_live", 300),
            series("sexton_nic_resets_total", 0, nic=names.nic),
            series("sexton_unit_restarts_total", 60_640, unit=names.unit),
            *(series("sexton_finding", 0, detector=detector, severity="") for detector in CHAIN),
        ]
    )


def sick(names: Names) -> str:
    """A node with the whole chain, from the unit that restarts to the NIC that was reset."""
    page = [
        series("sexton_build_info", 1, version="0.1.0"),
        series("sexton_verdict", 1),
        series("sexton_recorder_up", 1),
        series("sexton_recorder_problem", 0),
        series("sexton_memcgs_dying", 70_123),
        series("sexton_memcgs_live", 300),
        series("sexton_memcgs_leak_per_second", 0.1),
        series("sexton_memcgs_owner_dying", 69_000, owner=names.owner),
        series("sexton_memcgs_owner_dying", 1_123, owner="other"),
        series("sexton_held_core_seconds", 5.4, core="13", task=names.task),
        series("sexton_nic_resets_total", 3, nic=names.nic),
        series("sexton_unit_restarts_total", 61_000, unit=names.unit),
        series(
            "sexton_chain", 1,
            root=CHAIN[0], symptom=CHAIN[-1], strength="proven",
        ),
        series(
            "sexton_chain_info", 1,
            root=CHAIN[0], symptom=CHAIN[-1], sentence=names.sentence, culprit=names.unit,
        ),
    ]  # fmt: skip
    for detector in CHAIN:
        page.append(series("sexton_finding", 1, detector=detector, severity="critical"))
        explained = float(detector != CHAIN[0])
        page.append(series("sexton_finding_explained", explained, detector=detector))
    return "".join(page)


class Post(NamedTuple):
    """A notification as it came in."""

    path: str
    body: Any
    authorization: str | None


class Receiver:
    """Keeps what is posted to it, in order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._posts: list[Post] = []
        self._lock = Lock()

    def take(self, post: Post) -> None:
        with self._lock:
            self._posts.append(post)

    def at(self, path: str, about: str) -> list[Post]:
        """Those to `path` that have `about` (an instance) somewhere in their body."""
        with self._lock:
            posts = list(self._posts)
        return [post for post in posts if post.path == path and about in json.dumps(post.body)]


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def receiver() -> Iterator[Receiver]:
    kept = Receiver("")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            kept.take(Post(self.path, body, self.headers["Authorization"]))
            accepted = self.path == "/pagerduty"  # its API answers 202
            self.send_response(202 if accepted else 200)
            self.end_headers()
            self.wfile.write(b'{"status": "success"}' if accepted else b"ok")

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal of the tests."""

    with _serving(Handler) as address:
        kept.url = f"http://{address}"
        yield kept


class Node:
    """A made node; `page` is what its next scrape sees."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.address = ""
        self.page = healthy(names)

    def sicken(self) -> None:
        self.page = sick(self.names)

    def heal(self) -> None:
        self.page = healthy(self.names)


@contextmanager
def node(names: Names) -> Iterator[Node]:
    made = Node(names)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.end_headers()
            self.wfile.write(made.page.encode())

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal of the tests."""

    with _serving(Handler) as address:
        made.address = address
        yield made
