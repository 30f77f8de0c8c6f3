"""ELF files, as far as symbols need them: headers, notes, links to debug files.

The format: System V ABI, chapter 4, and ``man 5 elf``. Both widths and byte orders. Nothing in a
file is trusted: every offset and size is checked against the size of the file, counts are limited,
and anything invalid is `SourceMalformed`.
"""

from __future__ import annotations

import lzma
import struct
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from sexton.errors import SourceMalformed
from sexton.host.large_files import BytesImage, Image

#: Limit of one section; Chromium with all symbols has some 150 MB of names.
MOST_BYTES = 192 << 20
_MOST_SECTIONS = 65_536
_MOST_SEGMENTS = 4_096
_MOST_NOTES = 1 << 16
_MOST_PACKED = 32 << 20
_MOST_MEMORY = 128 << 20
_MAGIC = b"\x7fELF"
_PT_LOAD, _PT_NOTE = 1, 4
SHT_SYMTAB, _SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 7, 8, 11
SHT_RELA = 4
_NT_GNU_BUILD_ID = 3
_Fields: TypeAlias = "np.dtype[np.void]"


class Section(NamedTuple):
    """The header of a section."""

    number: int
    name: bytes
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class Segment(NamedTuple):
    """A loaded part of the file."""

    address: int
    memory: int
    offset: int
    stored: int


class Elf:
    """The headers of a file, read once."""

    def __init__(self, image: Image, most_bytes: int = MOST_BYTES) -> None:
        self.image = image
        self.most_bytes = most_bytes
        self.path = image.path
        head = image.read(0, min(64, image.size))
        if len(head) < 52 or not head.startswith(_MAGIC):
            raise SourceMalformed(self.path, 0, "not an ELF file")
        if head[4] not in (1, 2) or head[5] not in (1, 2):
            raise SourceMalformed(self.path, 0, "ELF file of unknown width or byte order")
        self.wide = head[4] == 2
        self.order = "<" if head[5] == 1 else ">"
        form = self.order + ("HHIQQQIHHHHHH" if self.wide else "HHIIIIIHHHHHH")
        if len(head) < 16 + struct.calcsize(form):
            raise SourceMalformed(self.path, 0, "truncated ELF header")
        _, self.machine, _, _, *rest = struct.unpack_from(form, head, 16)
        self._segments_at, self._sections_at, _, _ = rest[:4]
        self._segment_size, self._segment_count = rest[4:6]
        self._section_size, self._section_count, self._names_in = rest[6:]
        self.sections = self._read_sections()
        self.segments, self._notes = self._read_segments()

    def section(self, name: bytes) -> Section | None:
        """The first section of that name."""
        return next((section for section in self.sections if section.name == name), None)

    def linked(self, section: Section) -> Section | None:
        """The section that `section` links to."""
        return self.sections[section.link] if 0 < section.link < len(self.sections) else None

    def content(self, section: Section, most: int | None = None) -> bytes:
        """The bytes of a section; refused if it has none in the file or is too large."""
        most = self.most_bytes if most is None else most
        if section.kind == SHT_NOBITS:
            raise SourceMalformed(self.path, 0, "section without content")
        if section.size > most:
            raise SourceMalformed(self.path, 0, f"section of more than {most:,} bytes")
        return self.image.read(section.offset, section.size)

    def build_id(self) -> str | None:
        """The GNU build id in hexadecimal."""
        places = list(self._notes)
        for section in self.sections:
            if section.kind == _SHT_NOTE or section.name in (b".notes", b".note"):
                places.append((section.offset, section.size))
        for offset, size in places[:64]:
            found = build_id_in(self._bounded(offset, size), self.order)
            if found is not None:
                return found
        return None

    def debug_link(self) -> str | None:
        """The name of the file with debug information, without directory."""
        section = self.section(b".gnu_debuglink")
        if section is None or section.size > 4096:
            return None
        name = self.content(section).split(b"\0", 1)[0].decode("utf-8", "surrogateescape")
        return name if name and "/" not in name else None

    def packed_debug(self) -> Elf | None:
        """The small debug file that Fedora and others embed in a stripped program."""
        section = self.section(b".gnu_debugdata")
        if section is None:
            return None
        packed = self.content(section, _MOST_PACKED)
        try:
            unpack = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_MOST_MEMORY)
            content = unpack.decompress(packed, max_length=_MOST_PACKED)
            return Elf(BytesImage(content, f"{self.path}.debugdata"), self.most_bytes)
        except (lzma.LZMAError, SourceMalformed):
            return None

    def _bounded(self, offset: int, size: int) -> bytes:
        if offset >= self.image.size:
            return b""
        return self.image.read(offset, min(size, _MOST_NOTES, self.image.size - offset))

    def _table(self, at: int, count: int, size: int, fields: _Fields) -> npt.NDArray[np.void]:
        if not count or not at:
            return np.empty(0, fields)
        if size < fields.itemsize or at + count * size > self.image.size:
            raise SourceMalformed(self.path, 0, "headers lie past the end of the file")
        raw = self.image.read(at, count * size)
        return np.ndarray((count,), fields, raw, strides=(size,))

    def _read_segments(self) -> tuple[list[Segment], list[tuple[int, int]]]:
        if self._segment_count > _MOST_SEGMENTS:
            raise SourceMalformed(self.path, 0, "too many segments")
        fields = fields_of(self.order, _SEGMENT_64 if self.wide else _SEGMENT_32)
        rows = self._table(self._segments_at, self._segment_count, self._segment_size, fields)
        columns = (
            rows[name].tolist() for name in ("kind", "address", "memory", "offset", "stored")
        )
        loads, notes = [], []
        for kind, address, memory, offset, stored in zip(*columns, strict=True):
            if kind == _PT_LOAD:
                loads.append(Segment(address, memory, offset, stored))
            elif kind == _PT_NOTE:
                notes.append((offset, stored))
        return sorted(loads), notes

    def _read_sections(self) -> list[Section]:
        count, names_in = self._section_count, self._names_in
        fields = fields_of(self.order, _SECTION_64 if self.wide else _SECTION_32)
        if self._sections_at and not count:  # more than fit: the first header has the number
            first = self._table(self._sections_at, 1, self._section_size, fields)[0]
            count = int(first["size"])
        if count > _MOST_SECTIONS:
            raise SourceMalformed(self.path, 0, "too many sections")
        rows = self._table(self._sections_at, count, self._section_size, fields)
        if names_in == 0xFFFF and len(rows):
            names_in = int(rows[0]["link"])
        if names_in >= len(rows):
            return []
        at, size = int(rows[names_in]["offset"]), int(rows[names_in]["size"])
        if int(rows[names_in]["kind"]) == SHT_NOBITS:
            return []
        names = self.image.read(at, min(size, 1 << 22))
        sections = []
        for index, row in enumerate(rows.tolist()):
            name, *rest = row
            end = names.find(b"\0", name) if name < len(names) else -1
            sections.append(Section(index, names[name:end] if end >= 0 else b"", *rest))
        return sections


def build_id_in(notes: bytes, order: str = "<") -> str | None:
    """The GNU build id among ELF notes, as in ``/sys/kernel/notes``."""
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from(order + "III", notes, at)
        name_at = at + 12
        content_at = name_at + (name_size + 3 & ~3)
        at = content_at + (size + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[name_at : name_at + name_size] == b"GNU\0":
            found = notes[content_at : content_at + size]
            return found.hex() if 0 < size <= 64 and len(found) == size else None
    return None


_SECTION_64 = "name:u4 kind:u4 flags:u8 at:u8 offset:u8 size:u8 link:u4 info:u4 align:u8 entry:u8"
_SECTION_32 = "name:u4 kind:u4 flags:u4 at:u4 offset:u4 size:u4 link:u4 info:u4 align:u4 entry:u4"
_SEGMENT_64 = "kind:u4 flags:u4 offset:u8 address:u8 physical:u8 stored:u8 memory:u8 align:u8"
_SEGMENT_32 = "kind:u4 offset:u4 address:u4 physical:u4 stored:u4 memory:u4 flags:u4 align:u4"


def fields_of(order: str, fields: str) -> _Fields:
    """The layout of a table, with fields like ``name:u4``."""
    pairs = [part.split(":") for part in fields.split()]
    return np.dtype([(name, order + kind) for name, kind in pairs])
