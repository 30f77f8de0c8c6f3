"""Go's function table: three versions made by hand, and junk."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SextonError
from sexton.profile.symbols.elf import Section
from sexton.profile.symbols.symtab import go_functions

FUNCTIONS = [(0x1000, b"runtime.text"), (0x1040, b"main.main"), (0x10C0, b"main.(*T).go")]
END = 0x1100


class Program:
    """The part of an ELF file that is needed here."""

    order = "<"

    def __init__(self, table, text=0x1000):
        self._table = table
        self._text = text

    def section(self, name):
        if name == b".gopclntab":
            return Section(1, name, 1, 2, 0, 0, len(self._table), 0, 0, 1, 0)
        return Section(2, name, 1, 6, self._text, 0, 4096, 0, 0, 1, 0) if name == b".text" else None

    def content(self, section):
        return self._table


def table(magic, *, word=8, text=0x1000):
    """The head, names, then pairs of places and the entries they point to."""
    form = "Q" if word == 8 else "I"
    names = b"".join(name + b"\0" for _, name in FUNCTIONS)
    whole = magic == 0xFFFFFFFA
    fields = 7 if whole else 8
    head_size = 8 + fields * word
    names_at, functions_at = head_size, head_size + len(names)
    place = form if whole else "I"
    pairs_size = (2 * len(FUNCTIONS) + 1) * struct.calcsize("<" + place)
    pairs, entries, name_at = b"", b"", 0
    for start, name in FUNCTIONS:
        told = start if whole else start - 0x1000
        pairs += struct.pack("<2" + place, told, pairs_size + len(entries))
        entries += struct.pack("<" + place + "i", told, name_at)
        name_at += len(name) + 1
    pairs += struct.pack("<" + place, END if whole else END - 0x1000)
    rest = [names_at, functions_at, 0, 0, functions_at]
    numbers = [len(FUNCTIONS), 1, *([] if whole else [text]), *rest]
    head = struct.pack(f"<I2xBB{fields}{form}", magic, 1, word, *numbers)
    return head + names + pairs + entries + bytes(16)


@pytest.mark.parametrize("magic", [0xFFFFFFF1, 0xFFFFFFF0, 0xFFFFFFFA])
@pytest.mark.parametrize("word", [4, 8])
def test_every_function_has_its_extent_and_its_name(magic, word):
    rows, text = go_functions(Program(table(magic, word=word)))
    named = [text[at : text.index(b"\0", at)] for at in rows.name_at.tolist()]
    assert list(zip(rows.start.tolist(), named, strict=True)) == FUNCTIONS
    assert rows.size.tolist() == [0x40, 0x80, 0x40]


def test_without_a_text_address_in_the_header_the_text_section_is_used():
    rows, _ = go_functions(Program(table(0xFFFFFFF1, text=0)))
    assert rows.start.tolist() == [start for start, _ in FUNCTIONS]


def test_anything_else_is_not_a_table():
    good = table(0xFFFFFFF1)
    assert go_functions(Program(b"\0" * 200)) is None
    assert go_functions(Program(good[:60])) is None
    assert go_functions(Program(good[:90])) is None
    assert go_functions(Program(good[:8] + b"\xff" * 8 + good[16:])) is None


@given(st.integers(0, 250), st.binary(min_size=1, max_size=16), st.integers(0, 300))
def test_junk_is_rows_or_nothing_and_never_a_crash(at, junk, cut):
    for magic in (0xFFFFFFF1, 0xFFFFFFFA):
        content = bytearray(table(magic))
        content[at : at + len(junk)] = junk
        with contextlib.suppress(SextonError):
            found = go_functions(Program(bytes(content[: max(cut, 65)])))
            if found is not None:
                rows, text = found
                assert all(0 <= item < len(text) for item in rows.name_at.tolist())
