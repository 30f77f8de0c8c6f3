"""Fuzz target: perf script text."""

from __future__ import annotations

from io import BytesIO
from zlib import crc32

from sexton.errors import SextonError
from sexton.sources.perf import script_text
from sexton.sources.perf.sniff import sniff
from sexton.sources.perf.stream import Bounds
from tests.support.exports import export_all
from tests.support.fixtures import FIXTURES

BOUNDS = Bounds(unpacked=64 << 20, judged_from=1 << 20)


def one(data: bytes) -> None:
    """Read it and give it on; whatever it is, only our own errors may come of it."""
    sniff(data)
    try:
        named = script_text.read(BytesIO(data), "fuzzed", BOUNDS)
    except SextonError:
        return
    assert len(named) == len(named.stack) == len(named.cpu)
    assert named.stack_start[-1] == len(named.stack_frame)
    if crc32(data) % 8 == 0:  # it costs several times the reading
        export_all(named)


def seeds() -> list[bytes]:
    """Real text, short enough to be changed in many ways."""
    return [path.read_bytes()[:4000] for path in sorted((FIXTURES / "perf/script").glob("*.txt"))]
