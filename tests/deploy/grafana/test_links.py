"""Links of the boards, followed by what they lead to: the explorer's page reads their fragment."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import sexton.explorer.server
from bench.programs import find
from deploy.grafana.boards import links
from sexton.detect.registry import detector_ids
from sexton.export.server import RUNBOOKS, is_scraped

PAGE = Path(sexton.explorer.server.__file__).parent / "page"
READ = """\
import {stateOfHash} from "./state.js";
const {view, cursor, follow} = stateOfHash(process.argv[2], []);
console.log(JSON.stringify({view, cursor, follow}));
"""
FROM_S, TO_S, AT_S = 1_763_560_000, 1_763_563_600, 1_763_561_234


def followed(url: str) -> str:
    """The URL as Grafana's page completes it."""
    for name, value in {
        "scheme": "http",
        "instance": "node1:9643",
        "__data.fields.instance": "node1:9643",
        "__data.fields.root:percentencode": "zombie_memcgs",
        "__from:date:seconds": str(FROM_S),
        "__to:date:seconds": str(TO_S),
        "__value.time:date:seconds": str(AT_S),
    }.items():
        url = url.replace(f"${{{name}}}", value)
    assert "$" not in url
    return url


@pytest.mark.parametrize(
    ("link", "cursor"),
    [(links.EXPLORER, None), (links.EXPLORER_OF_ROW, None), (links.EXPLORER_AT, AT_S)],
)
def test_the_explorer_shows_the_time_of_the_board(link, cursor, tmp_path):
    node = find("node")
    if node is None:
        pytest.skip("needs Node: apt-get install nodejs")
    page = tmp_path / "page"
    shutil.copytree(PAGE, page)
    (page / "package.json").write_text('{"type": "module"}')
    (page / "read.js").write_text(READ)
    parts = urlsplit(followed(link.url))
    assert (parts.scheme, parts.netloc, parts.path) == ("http", "node1:9643", "/")
    argv = [node, "read.js", "#" + parts.fragment]
    read = subprocess.run(argv, cwd=page, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(read.stdout) == {
        "view": {"start": FROM_S, "end": TO_S},
        "cursor": cursor,
        "follow": False,  # a recorder that goes on must not move the view away from that time
    }


@pytest.mark.parametrize("link", [links.runbook("root"), links.runbook_of_row("root")])
def test_a_runbook_is_where_the_exporter_serves_it(link):
    path = urlsplit(followed(link.url)).path
    assert is_scraped(path)
    assert path.removeprefix(RUNBOOKS) in detector_ids()
