"""Symbols of an ELF file, chosen as in perf; and Go's own function table.

``.symtab`` (of the file or of its debug file) and ``.dynsym`` both count: defined functions,
indirect functions and objects, and labels in text or data sections. A value becomes a file offset
by the segment that loads it. Entries of the procedure linkage table get the name of their target:
``malloc@plt``.

A stripped Go program keeps its function table, because the runtime needs it for stack traces:
section ``.gopclntab`` (``.data.rel.ro.gopclntab`` in position-independent programs). It is
described in the Go source, src/debug/gosym/pclntab.go and src/runtime/symtab.go: a header, whose
first word is the version, then among others all names, each ending with NUL, and pairs of (code
position, position of the function's entry), the last without an entry. perf does not read it and
says ``[unknown]``; kubelet is stripped.

    f1ffffff 0000 01 08  …   Go 1.20 and later: positions are 32 bits, from the start of the text
    f0ffffff                 Go 1.18
    faffffff                 Go 1.16: positions are whole addresses
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from sexton.errors import SourceMalformed
from sexton.model.profile import I64, Bools
from sexton.profile.symbols.elf import (
    SHT_DYNSYM,
    SHT_NOBITS,
    SHT_RELA,
    SHT_SYMTAB,
    Elf,
    Section,
    fields_of,
)
from sexton.profile.symbols.table import CALL, Rows, Table, joined, table_of

_SHF_ALLOC = 2
_STT_OBJECT, _STT_FUNC, _STT_GNU_IFUNC = 1, 2, 10
_SHN_ABS = 0xFFF1
_INTERNAL, _HIDDEN = 1, 2
_EM_386, _EM_X86_64, _EM_ARM, _EM_AARCH64 = 3, 62, 40, 183
#: Bytes of the table's header and of an entry, if the section does not say.
_PLT = {_EM_ARM: (20, 12), _EM_AARCH64: (32, 16)}
_MOST_CALLS = 1 << 16

U64 = npt.NDArray[np.uint64]
_SYMBOL_64 = "name:u4 info:u1 other:u1 section:u2 value:u8 size:u8"
_SYMBOL_32 = "name:u4 value:u4 size:u4 info:u1 other:u1 section:u2"
NONE = Rows(
    np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.uint8), np.empty(0, np.int64)
)


def has_symtab(elf: Elf) -> bool:
    """Does it have ``.symtab``, or only dynamic symbols?"""
    return _symbols(elf, b".symtab", SHT_SYMTAB) is not None


def read_table(elf: Elf, runtime: Elf | None = None) -> Table:
    """All symbols of a file; `runtime` is the program if `elf` is its debug file."""
    runtime = runtime or elf
    names = _Names()
    rows = NONE
    for file, section in _sections(elf, runtime):
        found = _rows(file, section, runtime, names)
        if len(rows.start):  # most dynamic symbols are in the full table too
            found = found.chosen(~np.isin(found.start, rows.start))
        rows = joined(rows, found)
    if not has_symtab(elf):
        rows = joined(rows, _go_rows(runtime, names))
    rows = joined(rows, _calls(runtime, names, rows))
    return table_of(rows, names.text())


class _Names:
    """String tables, concatenated, each once."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, int], tuple[int, bytes]] = {}
        self._length = 0

    def add(self, elf: Elf, strings: Section) -> tuple[int, bytes]:
        """The offset of a section's text in the concatenation, and the text."""
        key = (elf.path, strings.number)
        if key not in self._texts:
            # Terminate a name at the end of the section.
            self.add_text(key, elf.content(strings) + b"\0")
        return self._texts[key]

    def add_text(self, key: tuple[str, int], text: bytes) -> int:
        """The offset of a text."""
        at = self._length
        self._texts[key] = at, text
        self._length += len(text)
        return at

    def text(self) -> bytes:
        return b"".join(text for _, text in self._texts.values())


def _go_rows(elf: Elf, names: _Names) -> Rows:
    """The functions of a Go program."""
    found = go_functions(elf)
    if found is None:
        return NONE
    rows, text = found
    at = names.add_text(("go", 0), text)
    nowhere = np.zeros(len(rows.start), np.int64)
    places = _places(rows.start, nowhere, elf, elf)
    return rows._replace(start=places, name_at=rows.name_at + at)


def _sections(elf: Elf, runtime: Elf) -> Iterator[tuple[Elf, Section]]:
    """The full table, then the dynamic symbols of the program."""
    for file, name, kind in ((elf, b".symtab", SHT_SYMTAB), (runtime, b".dynsym", SHT_DYNSYM)):
        section = _symbols(file, name, kind)
        if section is not None:
            yield file, section


def _symbols(elf: Elf, name: bytes, kind: int) -> Section | None:
    """A symbol table, unless it or its names exceed the limit."""
    section = elf.section(name)
    if section is None or section.kind != kind or not 0 < section.size <= elf.most_bytes:
        return None
    strings = elf.linked(section)
    return section if strings is not None and strings.size <= elf.most_bytes else None


def _rows(elf: Elf, section: Section, runtime: Elf, names: _Names) -> Rows:
    base, text = names.add(elf, elf.sections[section.link])
    symbols = _entries(elf, section)
    kinds, visibility = symbols["info"] & 15, symbols["other"] & 3
    home = symbols["section"].astype(np.int64)
    used = (symbols["name"] != 0) & (symbols["name"] < len(text))
    used &= (home != 0) & (home < len(elf.sections)) & (home != _SHN_ABS)
    code = (kinds == _STT_FUNC) | (kinds == _STT_OBJECT) | (kinds == _STT_GNU_IFUNC)
    label = (kinds == 0) & (visibility != _HIDDEN) & (visibility != _INTERNAL)
    loaded = np.array([bool(item.flags & _SHF_ALLOC) for item in elf.sections], np.bool_)
    worded = np.array([b"text" in item.name or b"data" in item.name for item in elf.sections])
    safe = np.where(used, home, 0)
    used &= (code | (label & worded[safe])) & loaded[safe]
    if elf.machine in (_EM_ARM, _EM_AARCH64):
        used &= ~_mapping_symbols(symbols["name"], text)
    chosen = symbols[used]
    values = chosen["value"].astype(np.uint64)
    if elf.machine == _EM_ARM:  # the lowest bit marks Thumb code
        values &= ~((kinds[used] == _STT_FUNC).astype(np.uint64))
    return Rows(
        _places(values, home[used], elf, runtime),
        chosen["size"].astype(np.uint64),
        (chosen["info"] >> 4).astype(np.uint8),
        chosen["name"].astype(np.int64) + base,
    )


def _entries(elf: Elf, section: Section) -> npt.NDArray[np.void]:
    kind = fields_of(elf.order, _SYMBOL_64 if elf.wide else _SYMBOL_32)
    if section.entry_size not in (0, kind.itemsize):
        raise SourceMalformed(elf.path, 0, f"symbols of {section.entry_size} bytes")
    raw = elf.content(section)
    return np.frombuffer(raw, kind, count=len(raw) // kind.itemsize)


def _mapping_symbols(names: npt.NDArray[np.uint32], text: bytes) -> Bools:
    """ARM's ``$a``, ``$d``, ``$t``, ``$x``: marks in the code, not functions."""
    letters = np.frombuffer(text + b"\0\0\0", np.uint8)
    at = np.minimum(names.astype(np.int64), len(text))
    second = np.isin(letters[at + 1], np.frombuffer(b"adtx", np.uint8))
    found: Bools = (letters[at] == ord("$")) & second
    return found


def _places(values: U64, home: I64, elf: Elf, runtime: Elf) -> U64:
    """Values as file offsets: by the segment, else by the section."""
    shift = np.zeros(len(values), np.uint64)
    loaded = np.zeros(len(values), np.bool_)
    for segment in runtime.segments:
        begin = np.uint64(segment.address)
        within = (
            ~loaded
            & (values >= begin)
            & (values - begin < np.uint64(max(segment.memory, segment.stored)))
        )
        shift[within] = np.uint64((segment.offset - segment.address) % (1 << 64))
        loaded |= within
    if not loaded.all():
        moved = [(section.offset - section.address) % (1 << 64) for section in elf.sections]
        shift = np.where(loaded, shift, np.array(moved, np.uint64)[home])
    return values + shift


def _calls(elf: Elf, names: _Names, rows: Rows) -> Rows:
    """The targets of the procedure linkage table: functions of other files, or indirect functions
    of this file (`rows`)."""
    relocations = elf.section(b".rela.plt") or elf.section(b".rel.plt")
    table = elf.section(b".plt.sec")
    headless = table is not None
    table = table or elf.section(b".plt")
    if relocations is None or table is None or SHT_NOBITS in (relocations.kind, table.kind):
        return NONE
    symbols = elf.linked(relocations)
    strings = elf.linked(symbols) if symbols is not None else None
    if symbols is None or strings is None or symbols.kind != SHT_DYNSYM:
        return NONE
    head, size = _PLT.get(elf.machine, (table.entry_size, table.entry_size))
    if elf.machine in (_EM_386, _EM_X86_64) and size not in (8, 16):
        head = size = 8 if table.align == 8 else 16
    calls = _relocated(elf, relocations)
    if not 0 < size <= 256:
        return NONE
    if headless or len(calls) * size == table.size:
        head = 0
    entries = _entries(elf, symbols)
    base, text = names.add(elf, strings)
    number = (calls["info"] >> (32 if elf.wide else 8)).astype(np.int64)
    number = np.where(number < len(entries), number, 0)
    at = entries["name"][number].astype(np.int64) if len(entries) else np.zeros_like(number)
    at = np.where((at > 0) & (at < len(text)), at + base, -1)
    if relocations.kind == SHT_RELA:
        own = (at < 0) & (number == 0)
        at[own] = _names_at(rows, elf, calls["addend"][own].astype(np.uint64))
    named = at >= 0
    first = np.uint64((table.offset + head) % (1 << 64))
    return Rows(
        first + np.flatnonzero(named).astype(np.uint64) * np.uint64(size),
        np.full(int(named.sum()), size, np.uint64),
        np.full(int(named.sum()), CALL, np.uint8),
        at[named],
    )


def _names_at(rows: Rows, elf: Elf, addresses: U64) -> I64:
    """The name of the symbol that starts at each address; -1: none."""
    if not len(rows.start) or not len(addresses):
        return np.full(len(addresses), -1, np.int64)
    order = np.argsort(rows.start, kind="stable")
    places = _places(addresses, np.zeros(len(addresses), np.int64), elf, elf)
    found = np.minimum(np.searchsorted(rows.start[order], places), len(order) - 1)
    return np.where(rows.start[order][found] == places, rows.name_at[order][found], -1)


def _relocated(elf: Elf, section: Section) -> npt.NDArray[np.void]:
    """Relocations sorted by the entries they fill."""
    word = "u8" if elf.wide else "u4"
    addend = f" addend:{word}" if section.kind == SHT_RELA else ""
    kind = fields_of(elf.order, f"offset:{word} info:{word}{addend}")
    raw = elf.content(section, _MOST_CALLS * kind.itemsize)
    rows = np.frombuffer(raw, kind, count=len(raw) // kind.itemsize)
    return rows[np.argsort(rows["offset"], kind="stable")]


_SECTIONS = (b".gopclntab", b".data.rel.ro.gopclntab")
_FROM_TEXT = (0xFFFFFFF1, 0xFFFFFFF0)
_WHOLE = 0xFFFFFFFA
_MOST_FUNCTIONS = 4_000_000
#: The header and one function.
_LEAST = 128


def go_section(elf: Elf) -> Section | None:
    """The function table of a Go program, if it is one."""
    for name in _SECTIONS:
        section = elf.section(name)
        if section is not None and section.kind != SHT_NOBITS and section.size >= _LEAST:
            return section
    return None


def go_functions(elf: Elf) -> tuple[Rows, bytes] | None:
    """Functions by *address*, and the text of their names; `None` without a valid table."""
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
    """The number at each of these offsets, -1 past the end."""
    words = np.ndarray((max(len(table) - 3, 0),), order + "i4", table, strides=(1,))
    inside = at < np.uint64(len(words))
    found = words[np.where(inside, at, np.uint64(0)).astype(np.int64)].astype(np.int64)
    return np.where(inside, found, -1)
