"""Which format a profile is in, told by its first bytes and by nothing else.

>>> sniff(b"swapper     0 [000] 16783.432569:   10309278 cpu-clock: \\n")
'script'
>>> sniff(b"java;start_thread;vfs_read 7\\n")
'folded'
>>> sniff(b"#!/bin/sh\\n") is None
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

from sexton.profile.perf import folded, pprof, script_text
from sexton.profile.perf.named import Named
from sexton.profile.perf.stream import opening

#: As much of the file's beginning as `sniff` wants, packed or not.
HEAD = 1 << 16
_PERF_DATA = (b"PERFILE2", b"2ELIFREP")

#: How each of the formats `sniff` names is read: of a stream at its beginning, and the file's name.
READERS: dict[str, Callable[[BinaryIO, str], Named]] = {
    "script": script_text.read,
    "folded": folded.read,
    "pprof": pprof.read,
}


def sniff(head: bytes) -> str | None:
    """ "script", "folded" or "pprof" by the first `HEAD` bytes of a file; `None` for none of them.

    Text that `perf script --header` or a profiler begins with long comments is looked for samples
    behind them as far as the head reaches; comments alone are taken for perf script's.
    """
    if head.startswith(_PERF_DATA):
        return None
    told = opening(head, HEAD)
    if script_text.looks_like(told):
        return "script"
    if folded.looks_like(told, whole=len(head) < HEAD):
        return "folded"
    if told.startswith(b"# ========\n"):
        return "script"
    return "pprof" if pprof.looks_like(told) else None
