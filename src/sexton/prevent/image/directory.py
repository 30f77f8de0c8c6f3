"""Reads an untrusted directory tree: an unpacked image, or a chroot.

`RootedFiles` resolves links inside the tree. A tree may hold worse than links: a device that acts
on open (``/dev/watchdog`` under the name of a unit reboots the machine), a FIFO, a sparse file of
ten gigabytes, a directory of ten million names. So each file is first opened with O_PATH and
checked with fstat, and read only if it is a regular file within the size limit; directory listings
are bounded.
"""

from __future__ import annotations

import os
import stat

from sexton.errors import SourceDenied, SourceMalformed
from sexton.host.reader import DEFAULT_LIMIT, OPEN_FLAGS, RootedFiles, failure

#: More than any real unit directory has.
MOST_NAMES = 50_000
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class ImageDirectory(RootedFiles):
    """`Files` of an untrusted directory tree."""

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        handle = self.handle(path)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                kind = next(
                    (word for test, word in _KINDS if test(found.st_mode)), "a special file"
                )
                raise SourceMalformed(path, 0, f"{kind}, not a regular file")
            if found.st_size > limit:
                raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
            # Through /proc: by now the path may lead to another file, the descriptor cannot.
            opened = os.open(f"/proc/self/fd/{handle}", OPEN_FLAGS)
        except FileNotFoundError:
            raise SourceDenied(path, "/proc must be mounted to read a directory image") from None
        except OSError as error:
            raise failure(path, error) from None
        finally:
            os.close(handle)
        return _all_of(opened, path, limit)

    def names(self, path: str) -> list[str]:
        handle = self.handle(path)
        try:
            opened = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise failure(path, error) from None
        finally:
            os.close(handle)
        found: list[str] = []
        try:
            with os.scandir(opened) as entries:
                for entry in entries:
                    found.append(entry.name)
                    if len(found) > MOST_NAMES:
                        raise SourceMalformed(path, 0, f"more than {MOST_NAMES:,} names")
        except OSError as error:
            raise failure(path, error) from None
        finally:
            os.close(opened)
        return found


def _all_of(descriptor: int, path: str, limit: int) -> bytes:
    pieces: list[bytes] = []
    left = limit + 1
    try:
        while left > 0 and (piece := os.read(descriptor, min(left, 1 << 16))):
            pieces.append(piece)
            left -= len(piece)
    except OSError as error:
        raise failure(path, error) from None
    finally:
        os.close(descriptor)
    if left <= 0:  # it grew since fstat, or is a /proc file, which reports size 0
        raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
    return b"".join(pieces)
