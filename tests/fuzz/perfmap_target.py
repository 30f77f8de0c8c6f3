"""What a process wrote about code it made, and names that want to be demangled."""

from __future__ import annotations

import contextlib

import numpy as np

from sexton.errors import SextonError
from sexton.profile.symbols.demangle import Demangler
from sexton.profile.symbols.symbols import parse_perf_map

_ADDRESSES = np.array([0, 0x1000, 0x7F0000000000, 2**64 - 1], np.uint64)


def one(data: bytes) -> None:
    with contextlib.suppress(SextonError):
        table = parse_perf_map(data)
        plain = Demangler().plain
        table.find(_ADDRESSES, plain)
        for name in table.names(np.arange(min(len(table), 50))):
            plain(name)
        plain("_Z" + data.decode("latin-1"))
