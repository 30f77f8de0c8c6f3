"""The files of a part of a recording, in an order that is safe to copy.

A segment's manifest comes after its tables, an open segment's journal after its streams, so an
interrupted copy is a valid recording with less in it. Of an open segment only what its journal
covers is copied: the recorder may be writing.

Only files listed in the manifest or the journal are copied.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sexton.errors import StoreError
from sexton.store.annex import LONGEST_RAW_S, annex_names
from sexton.store.journal import JOURNAL, MOST_JOURNAL, stream_path, whole_lines
from sexton.store.layout import MANIFEST, SIGNATURE, TABLES, is_count, read_manifest, read_plain
from sexton.store.pins import Spanned

_LOOSE = ("rings", "stacks")
#: perf is still writing it.
_UNFINISHED = "perf.data"
_SYMBOLS = "kallsyms-"
#: Recordings are untrusted: no other name may become a path.
_TABLE = re.compile(r"[a-z0-9_]+", re.ASCII)
CHUNK = 1 << 20
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class Piece(NamedTuple):
    """A file to copy: its name in the recording, its path, and how many of its bytes are valid."""

    name: str
    path: Path
    length: int

    def read(self) -> Iterator[bytes]:
        """Its bytes; `StoreError` if it became shorter or is not a regular file."""
        left = self.length
        try:
            # A pipe with the name of a table must not block us.
            descriptor = os.open(self.path, _READ)
            with os.fdopen(descriptor, "rb") as stream:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise StoreError(f"{self.name}: not a plain file")
                while left:
                    chunk = stream.read(min(left, CHUNK))
                    if not chunk:
                        raise StoreError(f"{self.name}: shorter than it was")
                    left -= len(chunk)
                    yield chunk
        except OSError as error:
            raise StoreError(f"{self.name}: {error.strerror}") from None


def pieces_of(path: Path) -> list[Piece]:
    """A sealed segment's files, its manifest last; then those of each annex in the same way.

    `StoreError` if it is damaged, or was compacted or deleted meanwhile.
    """
    place = f"segments/{path.name}"
    found = _sealed(place, path)
    for name in annex_names(path):
        with contextlib.suppress(StoreError):  # damaged: `recording verify` reports it
            found += _sealed(f"{place}/{name}", path / name)
    return found


def _sealed(place: str, path: Path) -> list[Piece]:
    names = dict.fromkeys(
        TABLES if "offset" in entry else f"{name}.parquet"
        for name, entry in read_manifest(path)["tables"].items()
        if "crc32" in entry and _TABLE.fullmatch(name)
    )
    sizes = {name: _size(path / name) for name in [*names, SIGNATURE, MANIFEST]}
    return [
        Piece(f"{place}/{name}", path / name, size)
        for name, size in sizes.items()
        if size is not None
    ]


def pieces_of_open(path: Path) -> list[Piece]:
    """An open segment's files, as far as its journal covers them."""
    place = f"open/{path.name}"
    try:
        lines, length = whole_lines(read_plain(path / JOURNAL, MOST_JOURNAL))
    except OSError as error:
        raise StoreError(f"{place}/{JOURNAL}: {error.strerror}") from None
    ends: dict[str, int] = {}
    for line in lines:
        ends.update({name: end for name, (end, _) in line.get("ends", {}).items()})
    found = []
    for name, end in ends.items():
        if not _TABLE.fullmatch(name):
            continue
        file = stream_path(path, name)
        size = _size(file)
        if size is not None:
            found.append(Piece(f"{place}/{file.name}", file, min(end, size)))
    return [*found, Piece(f"{place}/{JOURNAL}", path / JOURNAL, length)]


def loose_pieces(directory: Path, segments: Sequence[Spanned]) -> list[Piece]:
    """Rings and closed stack files from the time of these segments, by wall clock, and the symbols
    for the addresses in the stacks."""
    spans = [(segment.start[1], segment.end[1]) for segment in segments]
    boots = {segment.boot_id for segment in segments}
    found: list[Piece] = []
    for place in _LOOSE:
        for entry in _plain_files(directory / place):
            if entry.name.startswith(".") or entry.name == _UNFINISHED:
                continue
            status = entry.stat(follow_symlinks=False)
            end = status.st_mtime
            if entry.name.startswith(_SYMBOLS):
                wanted = any(boot and boot in entry.name for boot in boots)
            else:
                wanted = any(start <= end and end - LONGEST_RAW_S <= last for start, last in spans)
            if wanted:
                found.append(Piece(f"{place}/{entry.name}", Path(entry.path), status.st_size))
    return sorted(found)


def is_raw(name: str) -> bool:
    """Whether this piece is a closed perf file."""
    return name.startswith(f"stacks/{_UNFINISHED}.")


def waiting_stacks(directory: Path) -> list[Piece]:
    """perf's closed files that are not decoded into an annex yet."""
    return sorted(
        Piece(f"stacks/{entry.name}", Path(entry.path), entry.stat(follow_symlinks=False).st_size)
        for entry in _plain_files(directory / "stacks")
        if is_raw(f"stacks/{entry.name}")
    )


def shipped_in(found: Any) -> tuple[bool, dict[str, list[int]]]:
    """Whether a copy is complete, and its files with size and checksum, from ``shipped.json``;
    `ValueError` if it is something else."""
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        raise ValueError("not a list of shipped files")
    files = found["files"]
    for described in files.values():
        pair = isinstance(described, list) and len(described) == 2
        if not pair or not all(map(is_count, described)):
            raise ValueError("not a list of shipped files")
    if not isinstance(found.get("whole"), bool):
        raise ValueError("not a list of shipped files")
    return found["whole"], files


def _plain_files(place: Path) -> list[os.DirEntry[str]]:
    try:
        return [entry for entry in os.scandir(place) if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []


def _size(path: Path) -> int | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
