"""Fuzz target: perf script text."""

from __future__ import annotations

from sexton.profile.perf import script_text
from tests.fuzz.reading import read_and_give_on
from tests.support.fixtures import FIXTURES


def one(data: bytes) -> None:
    read_and_give_on(script_text.read, data)


def seeds() -> list[bytes]:
    """Real text, short enough to be changed in many ways."""
    return [path.read_bytes()[:4000] for path in sorted((FIXTURES / "perf/script").glob("*.txt"))]
