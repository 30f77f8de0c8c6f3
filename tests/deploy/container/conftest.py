"""The image's root file system, made as the Containerfile makes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.tools import need

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy/container"


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian's packages and wheels are downloaded: half a minute."""
    for program, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg")):
        need(program, package=package)
    if sys.version_info[:2] != (3, 11):
        pytest.skip("Debian 12's interpreter is 3.11: wheels for it need pip of the same")
    root = tmp_path_factory.mktemp("image") / "root"
    made = subprocess.run(
        [FOLDER / "root.sh", root],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert made.returncode == 0, made.stderr[-4000:]
    return root
