"""One capture for all: made once, read often."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.made_capture import made_capture


class Made(NamedTuple):
    """The capture, and the words that open it."""

    path: Path
    words: tuple[str, ...]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    capture, kallsyms = made_capture(tmp_path_factory.mktemp("capture"))
    return Made(capture, (str(capture), "--kallsyms", str(kallsyms)))


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch):
    """What is printed does not depend on where the test runs."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
