"""What is imported and started, and what is not: promises about cost, kept without a clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import ENVIRONMENT

#: Heavy, or not needed to watch a node. Numpy is paid for where something is judged.
NEVER = {"pyarrow", "duckdb", "rich", "pandas", "starlette", "uvicorn"}


def imported(*arguments: str) -> set[str]:
    """Top-level and dotted names of every module a command imported."""
    code = (
        "import sys\n"
        "from sexton.cli.main import main\n"
        f"status = main({list(arguments)!r})\n"
        "sys.stderr.write('\\n'.join(sys.modules))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(ended.stderr.split("\n"))


def test_the_version_is_told_before_anything_is_loaded() -> None:
    names = imported("--version")
    assert "sexton.cli.main" in names
    assert not names & (NEVER | {"numpy", "jeepney", "dataclasses", "json", "subprocess", "signal"})
    assert not {name for name in names if name.startswith(("sexton.sources", "sexton.detect"))}


@pytest.mark.parametrize("option", [(), ("--json",)])
def test_a_diagnosis_loads_neither_screen_nor_store(option: tuple[str, ...]) -> None:
    names = imported("diagnose", "--seconds", "0.2", *option)
    assert "sexton.detect.detectors.cgroups.zombie_memcgs" in names
    assert not names & NEVER


@pytest.mark.parametrize("command", [("zombies", "--seconds", "0.2"), ("sources",), ("collect",)])
def test_the_other_commands_load_neither_store_nor_fleet(command: tuple[str, ...]) -> None:
    assert not imported(*command) & (NEVER - {"rich"})


def test_the_explorers_description_loads_no_server() -> None:
    names = imported("serve", "--openapi")
    assert "sexton.explorer.server.openapi" in names
    assert not names & NEVER


def test_a_diagnosis_starts_neither_perf_nor_bpftrace(tmp_path: Path) -> None:
    """By an audit hook, which sees every program the interpreter starts."""
    log = tmp_path / "started"
    code = (
        "import sys\n"
        f"log = open({str(log)!r}, 'w')\n"
        "def hook(event, arguments):\n"
        "    if event in ('subprocess.Popen', 'os.system', 'os.exec', 'os.posix_spawn'):\n"
        "        print('started', arguments[0], file=log, flush=True)\n"
        "sys.addaudithook(hook)\n"
        "from sexton.cli.main import main\n"
        "main(['diagnose', '--seconds', '0.5'])\n"
        "import subprocess\n"
        "subprocess.run(['true'])\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=60,
        check=True,
    )
    seen = {line.rpartition("/")[2].rpartition(" ")[2] for line in log.read_text().splitlines()}
    assert "true" in seen, "else the hook saw nothing at all"
    assert not seen & {"perf", "bpftrace", "sh", "bash"}
