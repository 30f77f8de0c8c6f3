"""The real node-problem-detector runs the plug-in that is shipped, with its configuration."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.agent.result import result_of, write
from tests.agent.test_result import BOOT, DARK, FINE, FOLDER, ILL
from tests.deploy.peers import until
from tests.support.kubernetes import Cluster, programs

pytestmark = pytest.mark.whole

NODE = "node-p"


@pytest.fixture
def result(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """The result file that a running node-problem-detector's plug-in reads."""
    cluster.add_node(NODE)
    found = json.loads((FOLDER / "sexton.json").read_text())
    place = tmp_path / "run" / "npd"
    found["rules"][0] |= {"path": str(FOLDER / "sexton-npd.sh"), "args": [str(place)]}
    found["pluginConfig"]["invoke_interval"] = "1s"
    config = tmp_path / "sexton.json"
    config.write_text(json.dumps(found))
    server = f"https://127.0.0.1:{cluster.port}?inClusterConfig=false&auth={cluster.kubeconfig}"
    log = tmp_path / "log"
    argv = [
        programs("node-problem-detector").built / "node-problem-detector",
        f"--apiserver-override={server}", f"--hostname-override={NODE}", "--port=0",
        "--prometheus-port=0", f"--config.custom-plugin-monitor={config}",
        "--k8s-exporter-heartbeat-period=5s",
    ]  # fmt: skip
    with log.open("wb") as stream:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    try:
        yield place
    finally:
        process.terminate()
        process.wait(60)
        print(log.read_text()[-4000:])


def test_each_exit_becomes_its_condition(cluster: Cluster, result: Path):
    def condition() -> tuple[str, str]:
        found = cluster.get("node", NODE)["status"]["conditions"]
        mine = [each for each in found if each["type"] == "SextonProblem"]
        return (mine[0]["status"], mine[0]["message"]) if mine else ("", "")

    for state, status in ((FINE, "False"), (ILL, "True"), (DARK, "Unknown"), (FINE, "False")):
        write(str(result), result_of(state), 600.0, BOOT)
        until(lambda status=status: condition()[0] == status, f"{status}, not {condition()}")
        if state is ILL:
            assert condition()[1] == result_of(ILL).line
    os.unlink(result)
    until(lambda: condition()[0] == "Unknown", "Unknown without a file")
