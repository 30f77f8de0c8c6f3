"""Runs one target in a process of its own, and counts its inputs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TARGETS = sorted(path.stem.removesuffix("_target") for path in HERE.glob("*_target.py"))
_EXECUTED = re.compile(r"^sexton-fuzz: (\d+) inputs in ([0-9.]+) s$", re.MULTILINE)


class Ran(NamedTuple):
    """How a target ended; `failure` is empty if it found nothing."""

    inputs: int
    seconds: float
    failure: str


def run(name: str, inputs: int, seconds: float, corpus: Path, nice: int = 0) -> Ran:
    """At least so many inputs, and for so long. What reached something new is left in `corpus`, and
    what failed beside it."""
    command = [sys.executable, "-m", "tests.fuzz.learning", name]
    with tempfile.TemporaryDirectory(prefix="sexton-fuzz-") as held:  # it ends without tidying up
        ended = subprocess.run(
            ["nice", "-n", str(nice), *command, str(inputs), str(seconds), corpus],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": held},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds * 3 + 900,
            check=False,
        )
    found = _EXECUTED.search(ended.stderr)
    if ended.returncode or found is None:
        return Ran(0, 0.0, ended.stderr[-3000:] or f"exit {ended.returncode}")
    return Ran(int(found[1]), float(found[2]), "")
