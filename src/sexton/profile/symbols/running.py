"""Facts about the running machine: build id of its kernel, vDSO, root directories of processes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager

from sexton.errors import SourceError
from sexton.host.reader import Files, RootedFiles, text
from sexton.profile.symbols.elf import build_id_in

_AT_SYSINFO_EHDR = 33
_VDSO = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) .*\[vdso\]$", re.MULTILINE)
_NSPID = re.compile(r"^NSpid:\s+(.+)$", re.MULTILINE)
_MOST_VDSO = 1 << 18


def kernel_build_id(files: Files) -> str | None:
    """The running kernel's build id."""
    try:
        return build_id_in(files.read("/sys/kernel/notes", 1 << 16))
    except SourceError:
        return None


def kernel_release(files: Files) -> str | None:
    """The release, as in ``uname -r``."""
    try:
        return text(files, "/proc/sys/kernel/osrelease").strip()
    except SourceError:
        return None


def own_vdso(files: Files) -> bytes | None:
    """The vDSO of this process."""
    try:
        found = _VDSO.search(text(files, "/proc/self/maps"))
    except SourceError:
        return None
    if found is None:
        return None
    start, end = int(found[1], 16), int(found[2], 16)
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.argtypes, getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
    if getauxval(_AT_SYSINFO_EHDR) != start or not 0 < end - start <= _MOST_VDSO:
        return None
    return ctypes.string_at(start, end - start)


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


def innermost_pid(files: Files, pid: int) -> int:
    """The number of a process in its innermost PID namespace."""
    try:
        found = _NSPID.search(text(files, f"/proc/{pid}/status"))
        return int(found[1].split()[-1]) if found is not None else pid
    except (SourceError, ValueError):
        return pid


def started_wall_s(files: Files, pid: int) -> float | None:
    """The start time of a process."""
    try:
        after = text(files, f"/proc/{pid}/stat").rpartition(")")[2].split()
        booted = re.search(r"^btime (\d+)$", text(files, "/proc/stat"), re.MULTILINE)
        return int(booted[1]) + int(after[19]) / 100 if booted is not None else None
    except (SourceError, ValueError, IndexError):
        return None
