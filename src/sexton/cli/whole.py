"""A file that is written for somebody: there whole, or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import ExitStack

from sexton.errors import CommandError

#: For its owner alone: most of what is written tells about a node.
PRIVATE = 0o600


def write_whole(out: str, parts: Iterable[bytes], mode: int | None = PRIVATE) -> None:
    """Beside it first, then in its place; `mode` `None` is as the file had it, or as new files are.

    A terminal, a pipe or /dev/null is written to and never replaced by a file; a link is replaced,
    not followed, because in /tmp anybody may have laid it. `CommandError` says what went wrong.
    """
    if "\0" in out:
        raise CommandError("a path has no NUL in it")
    try:
        if _is_stream(out):
            with open(out, "wb") as stream:
                stream.writelines(parts)
            return
        _replace(out, parts, _as_it_was(out) if mode is None else mode)
    except OSError as error:
        raise CommandError(f"{out}: {error.strerror or error}") from None


def _replace(out: str, parts: Iterable[bytes], mode: int) -> None:
    aside = f"{out}.{os.getpid()}.part"
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    with ExitStack() as left_behind:
        left_behind.callback(os.unlink, aside)
        with open(handle, "wb") as stream:
            stream.writelines(parts)
            stream.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        os.replace(aside, out)
        left_behind.pop_all()


def _is_stream(out: str) -> bool:
    try:
        found = os.stat(out).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISBLK(found) or stat.S_ISSOCK(found):
        raise CommandError(f"{out}: a {'disk' if stat.S_ISBLK(found) else 'socket'}, no file")
    return stat.S_ISCHR(found) or stat.S_ISFIFO(found)


def _as_it_was(out: str) -> int:
    try:
        return stat.S_IMODE(os.stat(out, follow_symlinks=False).st_mode) & 0o777
    except FileNotFoundError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask
