"""Find a mapped file in the version that was mapped, and read its symbols.

A capture has the path and, with ``--buildid-mmap`` or in its own list, the build id. The path may
now hold another version, or exist only in a container. So a file is identified by its build id;
without one (Go's linker writes none that the kernel finds) by its inode, else by its path if it was
not modified after the capture.

Search order: the cache; the path itself; the path in ``/proc/PID/root`` of a process that had it
mapped and still runs; perf's store ``~/.debug``; the directories given by the user. The debug file
of a stripped program is searched by build id, by ``.gnu_debuglink``, and inside it
(``.gnu_debugdata``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from sexton.errors import SourceAbsent, SourceDenied, SourceError
from sexton.host.large_files import FileImage, open_image
from sexton.host.reader import Files, LiveFiles, RootedFiles, exists
from sexton.model.text import printable
from sexton.profile.perf.raw import MappedFile
from sexton.profile.symbols import SymbolOptions
from sexton.profile.symbols.cache import Cache
from sexton.profile.symbols.elf import Elf
from sexton.profile.symbols.symtab import go_section, has_symtab, read_table
from sexton.profile.symbols.table import EMPTY, Table

_DEBUG = "/usr/lib/debug"
_DELETED = " (deleted)"
#: Processes whose root is tried for one file.
_MOST_ROOTS = 8
_NAMED_EACH = 3


class Programs:
    """Symbol tables of mapped files; files not found or changed are listed in `problems`."""

    def __init__(self, options: SymbolOptions, cache: Cache) -> None:
        self._options = options
        self._cache = cache
        self._files: Files = LiveFiles() if options.root == "/" else RootedFiles(options.root)
        self._own = LiveFiles()
        self._changed: list[str] = []
        self._missing: list[str] = []
        self._broken: list[str] = []

    def table(
        self, file: MappedFile, pids: Sequence[int] = (), until_wall_s: float | None = None
    ) -> Table:
        """The symbols of a file; empty if it is missing or has changed.

        `pids` are processes that had it mapped; the capture ended at `until_wall_s`.
        """
        kept = self._kept(file.build_id) if file.build_id else None
        if kept is not None:
            return kept
        failed = self._missing
        for files, path in self._places(file, pids):
            try:
                with open_image(files, path) as image:
                    elf = Elf(image, self._options.most_bytes)
                    if not _same(file, elf, image, until_wall_s):
                        failed = self._changed if path in file.path else failed
                        continue
                    return self._read(file, elf, files)
            except (SourceAbsent, SourceDenied):
                continue
            except SourceError:
                failed = self._broken if path in file.path else failed
        kept = self._cache.load_table(f"{file.build_id}-part") if file.build_id else None
        if kept is not None:
            return kept
        if file.path.startswith("/") or file.build_id:  # but not [vsyscall]
            failed.append(file.path)
        return EMPTY

    def problems(self) -> list[str]:
        """One line per kind of problem since the last call."""
        lines = []
        for paths, what in (
            (self._changed, "changed since the capture, so their functions are [unknown]"),
            (self._missing, "not found, so their functions are [unknown]; use --symbols DIR"),
            (self._broken, "not readable as ELF, so their functions are [unknown]"),
        ):
            if paths:
                lines.append(f"{_listed(paths)}: {what}")
                paths.clear()
        return lines

    def _kept(self, build_id: str) -> Table | None:
        """The cached table; not for a stripped program whose debug file may have appeared."""
        full = self._cache.load_table(f"{build_id}-full")
        if full is not None or self._options.directories:
            return full
        by_id = f"{_DEBUG}/{_by_id(build_id)}.debug"
        return None if exists(self._files, by_id) else self._cache.load_table(f"{build_id}-part")

    def _read(self, file: MappedFile, elf: Elf, files: Files) -> Table:
        full = has_symtab(elf)
        table = None if full else self._debug_table(file, elf, files)
        if table is None and not full:
            packed = elf.packed_debug()
            table = read_table(packed, elf) if packed is not None else None
        full = full or table is not None or go_section(elf) is not None
        table = read_table(elf) if table is None else table
        key = f"{file.build_id}-{'full' if full else 'part'}"
        if file.build_id and not self._cache.has(key):
            self._cache.store_table(key, table)
        return table

    def _debug_table(self, file: MappedFile, runtime: Elf, files: Files) -> Table | None:
        """The symbols of a stripped program's debug file, if it is installed and matches."""
        wanted = runtime.build_id()
        if wanted is None:
            return None
        for tree, path in self._debug_places(file, runtime, wanted, files):
            try:
                with open_image(tree, path) as image:
                    elf = Elf(image, self._options.most_bytes)
                    if elf.build_id() == wanted and has_symtab(elf):
                        return read_table(elf, runtime)
            except SourceError:
                continue
        return None

    def _places(self, file: MappedFile, pids: Sequence[int]) -> Iterator[tuple[Files, str]]:
        path = file.path.removesuffix(_DELETED)
        if path.startswith("/"):
            yield self._files, path
            if self._options.root == "/" and (file.build_id or file.inode):
                for pid in islice(dict.fromkeys(pids), _MOST_ROOTS):
                    with root_of(pid) as root:
                        if root is not None:
                            yield root, path
        if file.build_id:
            home = os.path.expanduser("~/.debug")
            for directory in (home, *self._options.directories):
                stored = f"{directory}/{_by_id(file.build_id)}"
                yield self._own, f"{stored}/elf"
                yield self._own, stored
            for directory in self._options.directories:
                if path.startswith("/"):
                    yield self._own, directory + path
                yield self._own, f"{directory}/{os.path.basename(path)}"

    def _debug_places(
        self, file: MappedFile, runtime: Elf, build_id: str, files: Files
    ) -> Iterator[tuple[Files, str]]:
        by_id = _by_id(build_id)
        yield files, f"{_DEBUG}/{by_id}.debug"
        yield self._own, os.path.expanduser(f"~/.debug/{by_id}/debug")
        for directory in self._options.directories:
            yield self._own, f"{directory}/{by_id}.debug"
        link = runtime.debug_link()
        if link is None:
            return
        folder = os.path.dirname(file.path.removesuffix(_DELETED))
        for place in (folder, f"{folder}/.debug", f"{_DEBUG}{folder}"):
            yield files, f"{place}/{link}"
        for directory in self._options.directories:
            yield self._own, f"{directory}/{link}"


def _by_id(build_id: str) -> str:
    return f".build-id/{build_id[:2]}/{build_id[2:]}"


def _same(file: MappedFile, elf: Elf, image: FileImage, until_wall_s: float | None) -> bool:
    """Is this the mapped file?"""
    if file.build_id:
        return same_build_id(file.build_id, elf.build_id())
    if until_wall_s is not None and image.changed_s > until_wall_s:
        return False
    return not file.inode or file.inode == image.inode


@contextmanager
def root_of(pid: int) -> Iterator[RootedFiles | None]:
    """The root directory of a process; `None` if it has ended or access is denied."""
    try:
        root = RootedFiles(f"/proc/{pid}/root")
    except SourceError:
        yield None
        return
    try:
        yield root
    finally:
        root.close()


def same_build_id(one: str, other: str | None) -> bool:
    """Equal, except for the zeros with which perf pads short ones.

    >>> same_build_id("ab12", "ab120000"), same_build_id("ab12", "ab13"), same_build_id("ab", None)
    (True, False, False)
    """
    if other is None:
        return False
    short, long = sorted((one, other), key=len)
    return bool(short) and long.startswith(short) and not long[len(short) :].strip("0")


def _listed(paths: Sequence[str]) -> str:
    shown = ", ".join(printable(path) for path in paths[:_NAMED_EACH])
    more = len(paths) - _NAMED_EACH
    return f"{shown} and {more} more" if more > 0 else shown
