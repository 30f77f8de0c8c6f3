"""What just-in-time compilers say of their code: ``/tmp/perf-PID.map``.

Documented in the kernel's tools/perf/Documentation/jit-interface.txt: one line per function, its
address and size in hexadecimal and its name, which is the rest of the line::

    7f3c5c3ff040 1a0 py::fold:/srv/job.py

Quirks: the process itself writes it, so anything may stand there; code is replaced while it runs,
and the later line is the truer one; only as much as `MOST_BYTES` is read.

>>> table = parse(b"1000 10 first\\n2000 10 other\\n1000 20 second\\n")
>>> table.names(table.find(np.array([0x1018, 0x2000], np.uint64)))
['second', 'other']
"""

from __future__ import annotations

import re

import numpy as np

from sexton.profile.symbols.table import EMPTY, Rows, Table, table_of

MOST_BYTES = 64 << 20
MOST_LINES = 1_000_000
_LINE = re.compile(
    rb"^(?:0x)?([0-9a-fA-F]{1,16})[ \t]+(?:0x)?([0-9a-fA-F]{1,16})[ \t]+(?=[^\s])", re.M
)


def parse(text: bytes) -> Table:
    """Functions by their address in the process. Lines that make no sense are left out."""
    starts: list[int] = []
    sizes: list[int] = []
    names: list[int] = []
    for found in _LINE.finditer(text):
        if len(starts) >= MOST_LINES:
            break
        starts.append(int(found[1], 16))
        sizes.append(int(found[2], 16))
        names.append(found.end())
    if not starts:
        return EMPTY
    # The last of equal starts, and for that the order turned round.
    start, last = np.unique(np.array(starts[::-1], np.uint64), return_index=True)
    chosen = len(starts) - 1 - last
    rows = Rows(
        start,
        np.array(sizes, np.uint64)[chosen],
        np.ones(len(chosen), np.uint8),
        np.array(names, np.int64)[chosen],
    )
    return table_of(rows, text.replace(b"\n", b"\0") + b"\0")
