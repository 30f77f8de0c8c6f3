"""What the targets of the readers of text and pprof share."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from zlib import crc32

from sexton.errors import SextonError
from sexton.profile.files import sniff
from sexton.profile.perf.named_samples import NamedSamples
from sexton.profile.perf.stream import Bounds
from tests.support.exports import export_all

BOUNDS = Bounds(unpacked=64 << 20, judged_from=1 << 20)


def read_and_give_on(read: Callable[[BytesIO, str, Bounds], NamedSamples], data: bytes) -> None:
    """Whatever it is, only our own errors may come of it."""
    sniff(data)
    try:
        named = read(BytesIO(data), "fuzzed", BOUNDS)
    except SextonError:
        return
    assert len(named) == len(named.stack) == len(named.cpu)
    assert named.stacks.start[-1] == len(named.stacks.frame)
    if crc32(data) % 8 == 0:  # it costs several times the reading
        export_all(named)
