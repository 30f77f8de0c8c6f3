"""Programs that tests compare with."""

from __future__ import annotations

import shutil

import pytest

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def need(program: str, *, package: str) -> str:
    """Where `program` is; skips the test, naming the Debian package, where it is not."""
    found = shutil.which(program, path=_PATH)
    if found is None:
        pytest.skip(f"{program} is not installed: apt-get install {package}")
    return found
