"""The kernel's symbols as a stranger's file, plain or gzipped."""

from __future__ import annotations

import contextlib

import numpy as np

from sexton.errors import SextonError
from sexton.profile.perf.kallsyms import parse, unpacked

_ADDRESSES = np.array([0, 0xFFFFFFFF81000000, 0xFFFFFFFFC0200010, 2**64 - 1], np.uint64)


def one(data: bytes) -> None:
    with contextlib.suppress(SextonError):
        table = parse(unpacked(data))
        found = table.find(_ADDRESSES)
        known = found[found >= 0]
        table.names(known)
        table.module_names(known)
        table.shifted(-(1 << 40)).find(_ADDRESSES)
