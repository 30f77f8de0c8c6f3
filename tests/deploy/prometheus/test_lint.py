"""What pint, a linter of rules, says about ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "deploy" / "prometheus").glob("sexton-*.yml"))


@pytest.mark.whole
def test_pint_finds_nothing_to_better():
    """Its first run compiles it, which takes two minutes of a core."""
    built = subprocess.run([ROOT / "scripts" / "pint"], capture_output=True, text=True, check=False)
    if built.returncode == 3:
        pytest.skip(built.stderr.strip())
    assert built.returncode == 0, built.stderr
    argv = [built.stdout.strip(), "--no-color", "--offline", "lint", "--min-severity=info", *FILES]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Checking Prometheus rules" in ended.stderr
    for word in ("Fatal:", "Bug:", "Warning:", "Information:"):
        assert word not in ended.stdout + ended.stderr
