"""A real Prometheus scrapes over TLS, with a client certificate and a password."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.record.running import wait_until
from tests.web.certificates import Pair, Pki
from tests.web.serving import server
from tests.web.test_passwords import hashed
from tests.web.test_tls import mutual

PEERS = Path(__file__).parents[2] / ".venv/peers/usr/bin"
PROMETHEUS = shutil.which("prometheus") or shutil.which("prometheus", path=str(PEERS))


@pytest.mark.oracle
@pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus: scripts/system-packages")
def test_prometheus_scrapes_with_certificate_and_password_and_not_without(
    tmp_path: Path, pki: Pki
) -> None:
    path = mutual(tmp_path, pki.node, pki.authority, "client_allowed_sans: [prometheus.example]")
    with path.open("a") as stream:
        stream.write(f"basic_auth_users:\n  prometheus: {hashed('secret', 10)}\n")
    jobs = {
        "right": (pki.prometheus, "secret"),
        "no_certificate": (None, "secret"),
        "other_ca": (pki.stranger, "secret"),
        "wrong_password": (pki.prometheus, "wrong"),
    }
    with server("--listen", "0.0.0.0:0", "--web", path) as running:
        configured = [job(name, *given, pki, running.port) for name, given in jobs.items()]
        with prometheus(tmp_path, {"scrape_configs": configured}) as ask:
            wait_until(lambda: ask("count_over_time(answered[5m])").get("right", 0) >= 3, 60)
            wait_until(lambda: ask("up") == {"right": 1, **dict.fromkeys(list(jobs)[1:], 0)}, 60)
            assert ask("max_over_time(up[5m])") == ask("up")
            assert set(ask("count_over_time(answered[5m])")) == {"right"}
        assert running.said == []


def job(name: str, client: Pair | None, password: str, pki: Pki, port: int) -> dict[str, Any]:
    tls = {"ca_file": str(pki.authority.pair.cert)}
    if client is not None:
        tls |= {"cert_file": str(client.cert), "key_file": str(client.key)}
    return {
        "job_name": name,
        "scheme": "https",
        "scrape_interval": "500ms",
        "scrape_timeout": "500ms",
        "tls_config": tls,
        "basic_auth": {"username": "prometheus", "password": password},
        "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
    }


@contextlib.contextmanager
def prometheus(folder: Path, configuration: dict[str, Any]) -> Iterator[Any]:
    """A Prometheus on loopback; yields a function that gives a query's values by job."""
    (folder / "prometheus.yml").write_text(json.dumps(configuration))  # JSON is YAML
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [
            str(PROMETHEUS),
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "prometheus.log").open("wb"),
    )

    def ask(query: str) -> dict[str, float]:
        url = f"http://127.0.0.1:{port}/api/v1/query?query={urllib.parse.quote(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
        return {item["metric"]["job"]: float(item["value"][1]) for item in found}

    def is_ready() -> bool:
        assert process.poll() is None, (folder / "prometheus.log").read_text()
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5).close()
            return True
        return False

    try:
        wait_until(is_ready, 60)
        yield ask
    finally:
        process.kill()
        process.wait()
