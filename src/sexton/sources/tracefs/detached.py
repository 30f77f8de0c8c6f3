"""Tracefs for ourselves alone, where nobody mounted it.

`fsopen`, `fsconfig` and `fsmount` (Linux 5.2, the kernel's Documentation/filesystems/mount_api.rst)
give a mount that is attached nowhere: a file descriptor that only this process can look through,
absent from every mount table, gone when it is closed. So a node without tracefs can be traced by
root without changing what anybody else sees. The C library of many nodes has no wrappers for them,
hence the numbers, which are the same on every architecture since all three came with 5.2.
"""

from __future__ import annotations

import ctypes
import os

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CLOEXEC = 1
_CMD_CREATE = 6
_NOSUID_NODEV_NOEXEC = 2 | 4 | 8


def detached(fstype: str) -> int:
    """A descriptor of the root of a detached mount; `OSError` where the kernel will not."""
    context = _call(_FSOPEN, fstype.encode(), _CLOEXEC)
    try:
        _call(_FSCONFIG, context, _CMD_CREATE, None, None, 0)
        return _call(_FSMOUNT, context, _CLOEXEC, _NOSUID_NODEV_NOEXEC)
    finally:
        os.close(context)


def _call(number: int, *arguments: bytes | int | None) -> int:
    library = ctypes.CDLL(None, use_errno=True)
    result: int = library.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
