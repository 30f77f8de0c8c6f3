"""Prometheus and Alertmanager from Debian, unpacked by scripts/system-packages, on loopback."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bench.programs import find

Value = TypeVar("Value")

#: How long a condition may take on a busy machine. Nothing waits that long where it works.
DEADLINE_S = 180.0
#: Where Debian's Alertmanager looks for its own templates, whatever its configuration says.
TEMPLATES = Path("/usr/share/prometheus/alertmanager/default.tmpl")


def peer(program: str, *, package: str) -> str:
    """Where a program is; skips the test, naming the Debian package, where it is not."""
    found = find(program)
    if found is None:
        pytest.skip(f"{program} is not installed: make unpacks Debian's {package} as root")
    return found


def until(condition: Callable[[], Value], what: str) -> Value:
    """What `condition` returns as soon as it is true."""
    deadline = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {DEADLINE_S:.0f} s for {what}: {value}"
        time.sleep(0.1)
    return value


def answer(url: str, posted: object | None = None) -> Any:
    body = None if posted is None else json.dumps(posted).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
        text = response.read()
    return json.loads(text) if text else None


@contextmanager
def _server(argv: list[str], folder: Path) -> Iterator[str]:
    """The URL of a server that chooses its own port and logs it."""
    log = folder / "log"
    with (
        log.open("w") as out,
        subprocess.Popen(argv, cwd=folder, stdout=out, stderr=out) as process,
    ):

        def listening() -> str | None:
            assert process.poll() is None, log.read_text()
            found = re.search(r'"Listening on" address=(\S+)', log.read_text())
            return found and found[1]

        try:
            yield "http://" + until(listening, f"{argv[0]} to listen")
        finally:
            process.terminate()


@contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """Runs with `folder/prometheus.yml`."""
    argv = [
        peer("prometheus", package="prometheus"),
        "--config.file=prometheus.yml",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
        "--rules.alert.resend-delay=1s",
        "--log.level=info",
    ]
    with _server(argv, folder) as url:
        until(lambda: _ready(url), "Prometheus to be ready")
        yield url


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=DEADLINE_S) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@contextmanager
def alertmanager(folder: Path) -> Iterator[str]:
    """Runs with `folder/alertmanager.yml`."""
    program = peer("prometheus-alertmanager", package="prometheus-alertmanager")
    argv = [
        program,
        "--config.file=alertmanager.yml",
        f"--storage.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
        "--cluster.listen-address=",
    ]
    if not TEMPLATES.exists():
        # Seen from its own mount namespace, the unpacked package lies where it would be installed.
        share = Path(program).parents[1] / "share"
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        if subprocess.run(["unshare", *user, "--mount", "true"], check=False).returncode != 0:
            pytest.skip("Alertmanager is not installed, and no mount namespace may be made")
        script = 'mount --bind "$1" /usr/share && shift && exec "$@"'
        argv = ["unshare", *user, "--mount", "sh", "-c", script, "sh", str(share), *argv]
    with _server(argv, folder) as url:
        until(lambda: _ready(url), "Alertmanager to be ready")
        yield url
