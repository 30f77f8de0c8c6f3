"""Fuzz target: an open segment. Lines of the journal and blocks of rows, with checksums that fit.

Parts: `J` a line of the journal; `B` a table's number and a block of rows before it is compressed;
`A` a table's number and an Arrow stream, as older versions wrote them.
"""

from __future__ import annotations

import json
import struct
import zlib
from functools import cache
from pathlib import Path

from sexton.store.journal import ARROWS, JOURNAL, READING, ROWS
from sexton.store.layout import SCHEMA, prepare, segment_name
from sexton.store.schema import encode, tables
from tests.fuzz.parts import joined, parts
from tests.fuzz.reading_recordings import read_and_verify
from tests.store.test_hostile import stream_of
from tests.support.recordings import HEADER, WALL_S, marks, scratch, simple, write_open

_NAMES = [READING, *sorted(tables())]


def one(data: bytes) -> None:
    with scratch() as place:
        directory = place / "recording"
        prepare(directory)
        opened = directory / "open" / segment_name(1, WALL_S).text
        opened.mkdir()
        lines: list[bytes] = []
        streams: dict[str, bytes] = {}
        for kind, content in parts(data):
            if kind in (b"B", b"A") and content:
                lines.append(_flush(streams, kind, content))
            elif kind == b"J":
                lines.append(content.replace(b"\n", b" "))
        for name, stream in streams.items():
            (opened / name).write_bytes(stream)
        signed = (b"%08x %s\n" % (zlib.crc32(line), line) for line in lines)
        (opened / JOURNAL).write_bytes(b"".join(signed))
        read_and_verify(directory, data)


def _flush(streams: dict[str, bytes], kind: bytes, content: bytes) -> bytes:
    """Append to a table's file; the line of the journal that says so."""
    name, suffix = _NAMES[content[0] % len(_NAMES)], ARROWS if kind == b"A" else ROWS
    block = content[1:]
    if kind == b"B":
        packed = zlib.compress(block, 1)
        block = struct.pack("<I", len(packed)) + packed
    whole = streams[name + suffix] = streams.get(name + suffix, b"") + block
    return json.dumps({"ends": {name: [len(whole), zlib.crc32(block)]}}).encode()


@cache
def _header() -> bytes:
    return json.dumps({"schema": SCHEMA, **HEADER}).encode()


def _blocks(opened: Path) -> list[tuple[bytes, bytes]]:
    """The blocks of rows of an open segment as parts."""
    found = []
    for path in sorted(opened.glob(f"*{ROWS}")):
        number, content = _NAMES.index(path.stem), path.read_bytes()
        while content:
            (length,) = struct.unpack_from("<I", content)
            block, content = content[4 : 4 + length], content[4 + length :]
            found.append((b"B", bytes([number]) + zlib.decompress(block)))
    return found


def seeds() -> list[bytes]:
    """What a recorder writes, an Arrow stream, and states of sources."""
    with scratch() as place:
        blocks = _blocks(write_open(place, [simple(1.0), simple(3.0)]))
    batch = encode(tables()["mark"], [marks(3, 2.0)])[0]
    arrow = bytes([_NAMES.index("mark")]) + stream_of(batch)
    states = b'{"ends":{},"states":[["procfs.stat","/proc/stat","ok","","",false]]}'
    begin = (b"J", _header())
    return [joined([begin, *blocks]), joined([begin, blocks[0], (b"A", arrow), (b"J", states)])]
