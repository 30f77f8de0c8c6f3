"""Pipes, copied to a file before their content is looked at.

The limits for untrusted input depend on its size (`sexton.sandbox`), and a pipe has none. So it is
copied first, without a look at what it holds, and its descriptor then is the unlinked file.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from io import FileIO

from sexton.errors import SourceMalformed
from sexton.host.reader import failure

STDIN = "standard input"
_SHELLS_PIPE = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,9})", re.ASCII)
_PIECE = 1 << 20
#: Bytes left free in the directory for temporary files.
_SPARE = 256 << 20


def temporary_file() -> FileIO:
    """An unlinked file, which lives as long as it is open."""
    try:
        return tempfile.TemporaryFile(buffering=0, prefix="sexton-")
    except OSError as error:
        raise failure(tempfile.gettempdir(), error) from None


def room() -> int:
    """The number of bytes a temporary file may use."""
    return max(0, shutil.disk_usage(tempfile.gettempdir()).free - _SPARE)


def write_all(descriptor: int, content: bytes | memoryview) -> None:
    left = memoryview(content)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError as error:
        raise failure(tempfile.gettempdir(), error) from None


def descriptor_of(path: str) -> int | None:
    """The open descriptor that a path stands for: "-", or a shell's ``<(…)``; else `None`.

    >>> descriptor_of("-"), descriptor_of("/dev/fd/63"), descriptor_of("/tmp/x")
    (0, 63, None)
    """
    if path in ("-", "/dev/stdin"):
        return 0
    found = _SHELLS_PIPE.fullmatch(path)
    return None if found is None else int(found[1])


def spool(path: str) -> None:
    """If the path stands for an open pipe or socket, copy it and put the file in its place. Other
    named pipes are left alone: they may never get a writer."""
    number = descriptor_of(path)
    name = STDIN if number == 0 else path
    if number is None:
        return
    try:
        mode = os.fstat(number).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            return
        most, size = room(), 0
        with temporary_file() as held:
            while piece := os.read(number, _PIECE):
                size += len(piece)
                if size > most:
                    raise SourceMalformed(
                        name, 0, f"more than {most:,} bytes: not enough disk space"
                    )
                write_all(held.fileno(), piece)
            os.lseek(held.fileno(), 0, os.SEEK_SET)
            os.dup2(held.fileno(), number)
    except OSError as error:
        raise failure(name, error) from None
