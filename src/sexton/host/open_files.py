"""Small files that are read for hours, kept open between the readings.

Of the time it takes to read a process's line, half is finding the file and closing it again. A
recorder asks a thousand of them every ten seconds, so it keeps them open and reads from the start
each time. Bounded: past `most` descriptors a file is opened and closed as ever. A process that
ended answers ESRCH on what is open; then the name is looked up anew, since it may be another's.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Container

from sexton.errors import SourceMalformed
from sexton.host.reader import OPEN_FLAGS, LiveFiles, failure

#: Descriptors that everything else needs.
_SPARE = 256
_MOST = 2048


def room() -> int:
    """How many files may be held, by this process's own limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(0, min(soft - _SPARE, _MOST)) if soft != resource.RLIM_INFINITY else _MOST


class HeldFiles:
    """Reads like `LiveFiles`, for files of one record that are there for long."""

    def __init__(self, most: int | None = None) -> None:
        self._most = room() if most is None else most
        self._open: dict[str, int] = {}
        self._live = LiveFiles()

    def read(self, path: str, limit: int) -> bytes:
        """The file's record, at most `limit` bytes of it."""
        descriptor = self._open.get(path)
        if descriptor is not None:
            try:
                return _record(descriptor, path, limit)
            except OSError:  # whoever it was is gone
                self._forget(path)
        if len(self._open) >= self._most:
            return self._live.read(path, limit)
        try:
            descriptor = os.open(path, OPEN_FLAGS)
        except OSError as error:
            raise failure(path, error) from None
        self._open[path] = descriptor
        try:
            return _record(descriptor, path, limit)
        except OSError as error:
            self._forget(path)
            raise failure(path, error) from None

    def keep_only(self, paths: Container[str]) -> None:
        """Let go of all others."""
        for path in [each for each in self._open if each not in paths]:
            self._forget(path)

    def close(self) -> None:
        self.keep_only(())

    def __len__(self) -> int:
        return len(self._open)

    def _forget(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.close(self._open.pop(path))


def _record(descriptor: int, path: str, limit: int) -> bytes:
    content = os.pread(descriptor, limit + 1, 0)
    if len(content) > limit:
        raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
    return content
