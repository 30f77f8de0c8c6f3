"""The real command with a real API server: a recorder, its reporter, and a condition."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.test_result import plug_ins
from tests.deploy.peers import until
from tests.support.cli import ENVIRONMENT, SEXTON, one_line, sexton
from tests.support.kubernetes import Cluster

SMALL = ("--no-ring", "--no-probe", "--no-trace")


@contextmanager
def agent(folder: Path, *arguments: str | Path, **variables: str) -> Iterator[Path]:
    """Runs until the end; what it says is in the file."""
    said = folder / "said"
    command = [*SEXTON, "node-agent", folder / "recording", *SMALL, *arguments]
    with said.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env={**ENVIRONMENT, **variables},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
    try:
        yield said
        assert process.poll() is None, said.read_text()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def reporter_of(folder: Path) -> int | None:
    """The process ID of the reporter, by the recorder's status."""
    try:
        status = json.loads((folder / "recording/status.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    pid: int | None = status["companions"].get("reporter", {}).get("pid")
    return pid


@pytest.mark.whole
@pytest.mark.root
def test_a_recorder_reports_its_verdict_and_a_killed_reporter_is_started_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.add_node("node-c")

    def condition() -> dict[str, str]:
        found = cluster.get("node", "node-c")["status"]["conditions"]
        return next((each for each in found if each["type"] == "SextonHealthy"), {})

    npd = tmp_path / "npd"
    options = ("--kubeconfig", cluster.kubeconfig, "--npd", npd)
    with agent(tmp_path, *options, NODE_NAME="node-c") as said:
        first = until(condition, f"a condition: {said.read_text()}")
        assert first["status"] in ("True", "False", "Unknown")
        status, line = plug_ins(npd)
        assert line.startswith(("OK", "PROBLEM", "UNKNOWN")[status])
        pid = until(lambda: reporter_of(tmp_path), "the reporter in status.json")
        assert "pyarrow" not in Path(f"/proc/{pid}/maps").read_text(), "it reads no recording"
        os.kill(pid, signal.SIGKILL)
        until(lambda: reporter_of(tmp_path) not in (None, pid), "another reporter")
        until(lambda: condition()["lastHeartbeatTime"] != first["lastHeartbeatTime"], "its patch")
    assert "Traceback" not in said.read_text()


@pytest.mark.whole
@pytest.mark.root
def test_only_for_node_problem_detector(tmp_path: Path) -> None:
    npd = tmp_path / "run" / "npd"
    with agent(tmp_path, "--npd", npd, "--no-api") as said:
        until(npd.exists, f"a result: {said.read_text()}")
        status, line = plug_ins(npd)
        assert line.startswith(("OK", "PROBLEM", "UNKNOWN")[status])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "not in a pod: use --kubeconfig FILE"),
        (("--no-api",), "nothing to do without --npd"),
        (("--kubeconfig", "/nowhere"), "/nowhere: no such file"),
        (("--node", "Node_1"), "'Node_1' cannot be the name of a Node"),
        (("--kubeconfig", "/dev/null"), "not a kubeconfig"),
    ],
)
def test_what_cannot_work_is_one_line_and_records_nothing(tmp_path, arguments, words):
    ended = sexton("node-agent", tmp_path / "recording", *arguments)
    assert ended.returncode == 2
    assert words in one_line(ended.stderr)
    assert not (tmp_path / "recording").exists()


def test_the_process_that_judges_has_no_network(tmp_path):
    """In the place of the judgement: a socket."""
    code = (
        "import socket, sys\n"
        "from sexton.agent import judging\n"
        "from sexton.cli.main import main\n"
        "judging.judge = lambda directory: socket.socket()\n"
        "sys.exit(main(['node-agent', sys.argv[1], '--agent-part', 'judge']))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, tmp_path], env=ENVIRONMENT, capture_output=True, timeout=60
    )
    assert ended.returncode == 2
    assert "Operation not permitted" in one_line(ended.stderr)


def test_the_judge_has_the_settings_of_the_recorder(monkeypatch):
    from sexton.cli.commands.node_agent import _handed_on
    from sexton.cli.main import whole_parser

    monkeypatch.setenv("SEXTON_CONFIG", "/etc/other.toml")
    words = ["node-agent", "DIR", "--no-api", "--npd", "FILE"]
    for more, config in (([], "/etc/other.toml"), (["--config", "mine"], "mine")):
        handed = _handed_on(whole_parser().parse_args([*words, *more]))
        assert handed == ["--config", config, "--npd", "FILE"]
