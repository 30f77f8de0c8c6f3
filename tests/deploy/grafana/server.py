"""A real Grafana (its API), provisioned with the boards and data source of deploy/grafana."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.deploy.grafana.boards import FOLDER
from tests.deploy.peers import DEADLINE_S, until

ROOT = Path(__file__).parents[3]
BUILD_DEADLINE_S = 3600
QUIET = {
    "GF_ANALYTICS_REPORTING_ENABLED": "false",
    "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
    "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
    "GF_ALERTING_ENABLED": "false",
    "GF_UNIFIED_ALERTING_ENABLED": "false",
    "GF_NEWS_NEWS_FEED_ENABLED": "false",
    "GF_LOG_MODE": "console",
    "GF_SERVER_HTTP_ADDR": "127.0.0.1",
    "GF_SERVER_HTTP_PORT": "0",
}


class Built(NamedTuple):
    """Where scripts/grafana keeps the server and the SDK."""

    server: Path
    sdk: Path


def built() -> Built:
    """Builds them on first use, which takes minutes."""
    script = ["nice", "-n", "19", str(ROOT / "scripts/grafana")]
    made = subprocess.run(script, capture_output=True, text=True, timeout=BUILD_DEADLINE_S)
    if made.returncode == 3:
        pytest.skip(made.stderr.strip())
    assert made.returncode == 0, made.stderr[-4000:]
    server, sdk = made.stdout.split("\n")[:2]
    return Built(Path(server), Path(sdk))


class Grafana(NamedTuple):
    url: str

    def get(self, path: str) -> Any:
        return self._answer(urllib.request.Request(self.url + path))

    def post(self, path: str, body: object) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        return self._answer(request)

    def _answer(self, request: urllib.request.Request) -> Any:
        login = base64.b64encode(b"admin:admin").decode()
        request.add_header("Authorization", f"Basic {login}")
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{error.code}: {error.read().decode()[:4000]}") from error


def _provisioned(folder: Path, prometheus_url: str) -> Path:
    """The examples as a user would adapt them."""
    made = folder / "provisioning"
    shutil.copytree(FOLDER / "provisioning", made)
    for name in ("plugins", "notifiers", "alerting"):
        (made / name).mkdir()
    boards = folder / "boards"
    boards.mkdir()
    for path in FOLDER.glob("*.json"):
        shutil.copy(path, boards)
    for path, example, own in (
        (made / "datasources/prometheus.yml", "http://localhost:9090", prometheus_url),
        (made / "dashboards/sexton.yml", "/var/lib/grafana/dashboards/sexton", str(boards)),
    ):
        text = path.read_text()
        assert text.count(example) == 1
        path.write_text(text.replace(example, own))
    return made


@contextmanager
def grafana(home: Path, folder: Path, prometheus_url: str) -> Iterator[Grafana]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GF_")},
        **QUIET,
        "GF_PATHS_DATA": str(folder / "data"),
        "GF_PATHS_LOGS": str(folder / "logs"),
        "GF_PATHS_PLUGINS": str(folder / "plugins"),
        "GF_PATHS_PROVISIONING": str(_provisioned(folder, prometheus_url)),
    }
    argv = [str(home / "bin/grafana"), "server", "--homepath", str(home)]
    log = folder / "log"
    with (
        log.open("w") as out,
        subprocess.Popen(argv, cwd=folder, env=environment, stdout=out, stderr=out) as process,
    ):

        def listening() -> str | None:
            assert process.poll() is None, log.read_text()[-4000:]
            found = re.search(r'msg="HTTP Server Listen" address=(\S+)', log.read_text())
            return found and found[1]

        try:
            yield Grafana("http://" + until(listening, "Grafana to listen"))
        finally:
            process.terminate()
