"""Real programs of the Prometheus project read what is exported."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sexton.export.exposition import Page
from tests.deploy.grafana.scene import NODES, sick
from tests.deploy.peers import peer
from tests.export.live import LiveRecording
from tests.export.test_server import serving
from tests.record.running import wait_until
from tests.support.cli import ENVIRONMENT, SEXTON
from tests.web.certificates import Authority
from tests.web.test_passwords import hashed
from tests.web.test_prometheus import prometheus

pytestmark = pytest.mark.oracle
SECONDS = tuple(float(age) for age in range(20, -1, -1))


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveRecording]:
    made = LiveRecording(tmp_path / "recording")
    made.write(SECONDS)
    yield made
    made.end()


def samples_in(text: str) -> dict[tuple[str, str], float]:
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            if "le" in labels:
                labels["le"] = str(float(labels["le"]))  # "1" or "1.0"
            found[sample.name, str(sorted(labels.items()))] = sample.value
    return found


@pytest.mark.parametrize("make", dict.fromkeys(NODES.values()), ids=lambda make: make.__name__)
def test_promtool_finds_nothing_wrong_with_a_page(make):
    """Neither with its syntax nor with names, types and help."""
    program = peer("promtool", package="prometheus")
    body, _ = Page(make(3)).body("", False)
    checked = subprocess.run([program, "check", "metrics"], input=body, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, b"")


@pytest.mark.parametrize("names", ["ours", "hostile"])
def test_node_exporter_serves_the_file_of_once(live: LiveRecording, tmp_path: Path, names: str):
    program = peer("prometheus-node-exporter", package="prometheus-node-exporter")
    place = tmp_path / "textfile"
    place.mkdir()
    file = place / "sexton.prom"
    command = [*SEXTON, "export", "--once", file, "--from", live.directory]
    subprocess.run(command, env=ENVIRONMENT, check=True)
    if names == "hostile":
        file.write_bytes(Page(sick(3)).body("", False)[0])
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [program, "--collector.disable-defaults", "--collector.textfile",
         f"--collector.textfile.directory={place}", f"--web.listen-address=127.0.0.1:{port}"],
        stdout=quiet, stderr=quiet,
    )  # fmt: skip

    def served() -> str:
        assert process.poll() is None
        url = f"http://127.0.0.1:{port}/metrics"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())
        return ""

    try:
        wait_until(lambda: served() != "", 60)
        found = samples_in(served())
    finally:
        process.kill()
        process.wait()
    assert found["node_textfile_scrape_error", "[]"] == 0
    ours = samples_in(file.read_text("utf-8"))
    assert ("sexton_memcgs_dying", "[]") in ours
    assert {key: found.get(key) for key in ours} == ours


def test_prometheus_scrapes_the_metrics_over_tls_with_a_password(
    live: LiveRecording, tmp_path: Path
):
    peer("prometheus", package="prometheus")
    ours = Authority(tmp_path, "ca")
    node = ours.sign("node", "IP:127.0.0.1")
    web = tmp_path / "web.yml"
    web.write_text(
        f"tls_server_config: {{cert_file: {node.cert}, key_file: {node.key}}}\n"
        f"basic_auth_users: {{prometheus: {hashed('secret', 10)}}}\n"
    )
    listen = ("--from", live.directory, "--listen", "127.0.0.1:0", "--web.config.file", web)
    with serving(tmp_path, "export", *listen) as served:
        jobs = [
            {
                "job_name": name,
                "scheme": "https",
                "scrape_interval": "500ms",
                "scrape_timeout": "500ms",
                "tls_config": {"ca_file": str(ours.pair.cert)},
                "basic_auth": {"username": "prometheus", "password": password},
                "static_configs": [{"targets": [f"127.0.0.1:{served.port}"]}],
            }
            for name, password in (("right", "secret"), ("wrong", "guessed"))
        ]
        with prometheus(tmp_path, {"scrape_configs": jobs}) as ask:

            def judged() -> bool:
                live.write((0.0,))  # so that it is fresh
                return set(ask("count_over_time(sexton_verdict[5m])")) == {"right"}

            wait_until(judged, 60)
            wait_until(lambda: ask("up") == {"right": 1, "wrong": 0}, 60)
            assert ask("max_over_time(sexton_memcgs_dying[5m])") == {"right": 7}
            assert ask("max_over_time(up[5m])") == {"right": 1, "wrong": 0}
