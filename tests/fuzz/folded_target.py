"""Fuzz target: folded stacks."""

from __future__ import annotations

from io import BytesIO
from zlib import crc32

from sexton.errors import SextonError
from sexton.sources.perf import folded
from sexton.sources.perf.sniff import sniff
from sexton.sources.perf.stream import Bounds
from tests.support.exports import export_all

BOUNDS = Bounds(unpacked=64 << 20, judged_from=1 << 20)


def one(data: bytes) -> None:
    """Read it and give it on; whatever it is, only our own errors may come of it."""
    sniff(data)
    try:
        named = folded.read(BytesIO(data), "fuzzed", BOUNDS)
    except SextonError:
        return
    assert len(named) == len(named.stack) == len(named.cpu)
    assert named.stack_start[-1] == len(named.stack_frame)
    if crc32(data) % 8 == 0:  # it costs several times the reading
        export_all(named)


def seeds() -> list[bytes]:
    """Stacks in the variants people have."""
    return [
        b"ksoftirqd/12;kthread;run_ksoftirqd;net_rx_action 42\n" * 2,
        b"# {}\njava;start_thread;Interpreter_[j];vfs_read_[k] 7.5\nWeb Content;main 1\n",
    ]
