"""Programs that somebody else made: headers, notes, symbol tables, Go's table of functions."""

from __future__ import annotations

import contextlib

import numpy as np

from sexton.errors import SextonError
from sexton.host.large_files import BytesImage
from sexton.profile.symbols.elf import Elf
from sexton.profile.symbols.symtab import go_functions, has_symtab, read_table

_PLACES = np.array([0, 1, 0x1000, 0x1139, 0x401000, 2**63, 2**64 - 1], np.uint64)


def one(data: bytes) -> None:
    with contextlib.suppress(SextonError):
        elf = Elf(BytesImage(data, "fuzzed"))
        elf.build_id()
        elf.debug_link()
        has_symtab(elf)
        go_functions(elf)
        elf.packed_debug()
        table = read_table(elf)
        found = table.find(_PLACES)
        table.names(found[found >= 0])
        table.names(np.arange(min(len(table), 50)))
