"""Installed with `pip install --target`, as on nodes where no environment may be made."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import sexton

PROJECT = Path(__file__).parents[2]


@pytest.mark.whole
def test_a_recorder_from_a_target_directory_starts_its_children(tmp_path: Path):
    """Its sealer was not found: -I ignores the PYTHONPATH that such an installation needs."""
    target, recording, here = tmp_path / "target", tmp_path / "recording", tmp_path / "here"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    offline = ("--no-build-isolation", "--disable-pip-version-check", "--target", str(target))
    subprocess.run([*pip, *offline, str(PROJECT)], check=True)
    # A package of this name in the current directory is not ours.
    (here / "sexton").mkdir(parents=True)
    (here / "sexton" / "__init__.py").write_text("raise SystemExit('from the wrong place')")
    # The dependencies come from this environment, Sexton does not: .pth files are not read there.
    places = os.pathsep.join((str(target), sysconfig.get_path("purelib")))
    bare = getattr(sys, "_base_executable", sys.executable)
    lean = ("--no-ring", "--no-probe", "--no-trace", "--seconds", "1")
    ended = subprocess.run(
        [bare, "-P", "-m", "sexton", "record", str(recording), *lean],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": places},
        cwd=here,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert "not written" not in ended.stderr
    assert list(recording.glob("segments/*/manifest.json")), "sealed by a child"
    assert str(target) not in str(sexton.__file__)
