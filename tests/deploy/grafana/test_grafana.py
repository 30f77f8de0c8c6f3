"""The boards in a real Grafana: valid by its own schema, provisioned from the files, and every
query answered through its API. Compiled on first use, so `make test-whole` only."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.deploy.grafana.boards import ALL, BOARDS, FOLDER, Value, interpolated, targets
from tests.deploy.grafana.scene import SICK, scraped
from tests.deploy.grafana.server import built, grafana
from tests.deploy.peers import until

pytestmark = pytest.mark.whole

CHOSEN: dict[str, dict[str, Value]] = {
    "sexton-node": {"job": SICK.job, "instance": SICK.instance},
    "sexton-fleet": {"job": ALL},
}
#: Reads a board into the SDK's models, which drop what they do not know, and prints it again.
READ_BACK = """\
import json, sys
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
plugins.register_default_plugins()
print(json.dumps(Dashboard.from_json(json.load(open(sys.argv[1]))), cls=JSONEncoder))
"""
#: What Grafana 10 uses and the models of 11.6 no longer have.
OLDER = {"definition", "show", "textFormat", "titleFormat", "tagKeys", "step", "useValueForTime"}

every_board = pytest.mark.parametrize("name", BOARDS)


@pytest.fixture(scope="module")
def peers():
    return built()


@pytest.fixture(scope="module")
def served(peers, tmp_path_factory):
    with (
        scraped(tmp_path_factory.mktemp("prometheus")) as prometheus_url,
        grafana(peers.server, tmp_path_factory.mktemp("grafana"), prometheus_url) as running,
    ):
        until(lambda: len(running.get("/api/search?tag=sexton")) == len(BOARDS), "both boards")
        yield running


@every_board
def test_grafana_finds_a_board_valid_by_its_schema(served, name):
    text = (FOLDER / f"{name}.json").read_text()
    assert served.post("/api/dashboards/validate", {"dashboard": text}) == {"isValid": True}


def test_grafana_refuses_a_board_that_is_not(served):
    board = {**BOARDS["sexton-node"], "graphTooltip": "crosshair"}
    with pytest.raises(AssertionError, match="422"):
        served.post("/api/dashboards/validate", {"dashboard": json.dumps(board)})


@every_board
def test_a_board_is_provisioned_as_it_is_in_the_file(served, name):
    found = served.get(f"/api/dashboards/uid/{name}")
    assert found["meta"]["provisioned"]
    assert found["meta"]["folderTitle"] == "Sexton"
    shown = {
        key: value for key, value in found["dashboard"].items() if key not in ("id", "version")
    }
    assert shown == BOARDS[name]


@every_board
def test_no_query_is_empty_through_grafana(served, name):
    until(lambda: empty(served, name) == [], "data in every query")


def empty(served: Any, name: str) -> list[str]:
    """Queries whose frames have no value, asked as a panel asks."""
    board, without = BOARDS[name], []
    for panel in board["panels"]:
        queries = [
            {
                **target,
                "expr": interpolated(target["expr"], CHOSEN[name], board),
                "datasource": {"type": "prometheus", "uid": "prometheus"},
                "intervalMs": 15_000,
                "maxDataPoints": 500,
            }
            for target in panel.get("targets", ())
        ]
        if not queries:
            continue
        body = {"from": "now-5m", "to": "now", "queries": queries}
        results = served.post("/api/ds/query", body)["results"]
        for ref, result in results.items():
            assert result["status"] == 200, (panel["title"], result)
            if not any(_values(frame) for frame in result["frames"]):
                without.append(f"{panel['title']} {ref}")
    assert without or len(list(targets(board))) > 20
    return without


def _values(frame: Mapping[str, Any]) -> list[object]:
    fields = frame["data"]["values"]
    return [value for value in fields[-1] if value is not None] if fields else []


@every_board
def test_the_sdk_of_a_later_grafana_knows_every_property(peers, name):
    path = FOLDER / f"{name}.json"
    read = subprocess.run(
        [sys.executable, "-c", READ_BACK, str(path)],
        env={"PYTHONPATH": str(peers.sdk)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert read.returncode == 0, read.stderr
    assert list(_changed(BOARDS[name], json.loads(read.stdout), "")) == []


def _changed(ours: Any, theirs: Any, where: str) -> Iterator[str]:
    """What is lost or has another value; what is added are defaults."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            if key in theirs:
                yield from _changed(value, theirs[key], f"{where}/{key}")
            elif key not in OLDER:
                yield f"{where}/{key} is lost"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for at, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _changed(mine, other, f"{where}/{at}")
    elif ours != theirs:
        yield f"{where}: {ours!r} became {theirs!r}"
