"""An image unpacked into a directory, or somebody's chroot: whatever lies in it, we only look.

`RootedFiles` already keeps links inside. An image may hold worse than links: a device that acts
when it is merely opened (``/dev/watchdog`` under the name of a unit reboots the machine it is
opened on), a FIFO, a file of ten gigabytes of nothing, a directory of ten million names. So a file
is held without opening it (O_PATH), looked at, and opened only if it is a regular one of bearable
size; and names are counted while they are listed.
"""

from __future__ import annotations

import os
import stat

from sexton.errors import SourceDenied, SourceMalformed
from sexton.host.reader import DEFAULT_LIMIT, OPEN_FLAGS, RootedFiles, failure

#: More than any directory of units has; a hostile one may have millions.
MOST_NAMES = 50_000
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class ImageDirectory(RootedFiles):
    """See the module."""

    def read(self, path: str, limit: int = DEFAULT_LIMIT) -> bytes:
        handle = self.handle(path)
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                kind = next((word for test, word in _KINDS if test(found.st_mode)), "no file")
                raise SourceMalformed(path, 0, f"{kind}, not a regular file")
            if found.st_size > limit:
                raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
            # Through /proc, because the name may be another file by now, and this one is not.
            opened = os.open(f"/proc/self/fd/{handle}", OPEN_FLAGS)
        except FileNotFoundError:
            raise SourceDenied(path, "without /proc no file of an image is opened") from None
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
    if left <= 0:  # it grew since it was looked at, or is one of /proc's, which have no size
        raise SourceMalformed(path, 0, f"larger than {limit:,} bytes")
    return b"".join(pieces)
