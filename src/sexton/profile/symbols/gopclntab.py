"""Names of a stripped Go program: its own table of functions, which stripping leaves in place.

The runtime needs it for its own stack traces: section ``.gopclntab`` (``.data.rel.ro.gopclntab``
where the program may be loaded anywhere). Described in the Go source, src/debug/gosym/pclntab.go
and src/runtime/symtab.go: a head, whose first word tells the version, then among others all names,
each ending with a NUL, and pairs of (place of the code, place of the function's entry), the last
without an entry. perf does not read it and says ``[unknown]``; kubelet comes stripped.

    f1ffffff 0000 01 08  …   Go 1.20 and later: places are 32 bits, from the start of the text
    f0ffffff                 Go 1.18
    faffffff                 Go 1.16: places are whole addresses
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from sexton.profile.symbols.elf import SHT_NOBITS, Elf, Section
from sexton.profile.symbols.table import Rows

_SECTIONS = (b".gopclntab", b".data.rel.ro.gopclntab")
_FROM_TEXT = (0xFFFFFFF1, 0xFFFFFFF0)
_WHOLE = 0xFFFFFFFA
_MOST_FUNCTIONS = 4_000_000
#: The head and one function.
_LEAST = 128

U64 = npt.NDArray[np.uint64]


def go_section(elf: Elf) -> Section | None:
    """The table, if this is a Go program's."""
    for name in _SECTIONS:
        section = elf.section(name)
        if section is not None and section.kind != SHT_NOBITS and section.size >= _LEAST:
            return section
    return None


def go_functions(elf: Elf) -> tuple[Rows, bytes] | None:
    """Functions by their *address*, and the text of their names; `None` where it is no table."""
    section = go_section(elf)
    if section is None:
        return None
    table = elf.content(section)
    magic, quantum, word = struct.unpack_from(elf.order + "I2xBB", table)
    if word not in (4, 8) or quantum not in (1, 2, 4):
        return None
    form = elf.order + ("Q" if word == 8 else "I")
    if magic in _FROM_TEXT:
        count, _, text, names_at, names_end, *_, functions_at = struct.unpack_from(
            form[0] + form[1] * 8, table, 8
        )
        pair, entry_bytes = elf.order + "u4", 4
        if not text:
            code = elf.section(b".text")
            text = code.address if code is not None else 0
    elif magic == _WHOLE:
        count, _, names_at, names_end, *_, functions_at = struct.unpack_from(
            form[0] + form[1] * 7, table, 8
        )
        pair, entry_bytes, text = elf.order + f"u{word}", word, 0
    else:
        return None
    pairs_end = functions_at + (2 * count + 1) * int(pair[-1])
    if (
        not 0 < count <= _MOST_FUNCTIONS
        or pairs_end > len(table)
        or not names_at < names_end <= len(table)
    ):
        return None
    pairs = np.frombuffer(table, pair, 2 * count + 1, functions_at).astype(np.uint64)
    start = pairs[0::2] + np.uint64(text)
    name_at = _name_places(table, pairs[1::2] + np.uint64(functions_at + entry_bytes), elf.order)
    names = table[names_at:names_end]
    known = (name_at >= 0) & (name_at < len(names)) & (start[1:] > start[:-1])
    binding = np.ones(count, np.uint8)
    rows = Rows(start[:-1], start[1:] - start[:-1], binding, name_at)
    return rows.chosen(known), names + b"\0"


def _name_places(table: bytes, at: U64, order: str) -> npt.NDArray[np.int64]:
    """The number at each of those bytes, -1 where it is past the end."""
    words = np.ndarray((max(len(table) - 3, 0),), order + "i4", table, strides=(1,))
    inside = at < np.uint64(len(words))
    found = words[np.where(inside, at, np.uint64(0)).astype(np.int64)].astype(np.int64)
    return np.where(inside, found, -1)
