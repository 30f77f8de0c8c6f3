"""A mount that never answers: FUSE without a server behind it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_DETACH = 2


@contextmanager
def hung_mount(place: Path) -> Iterator[str]:
    """The path of a directory: every call on it waits in the kernel until this ends.

    The mount has no place in the tree of files any more, so a test that is killed leaves none.
    """
    try:
        device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"/dev/fuse: {error.strerror}")
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    target = os.fsencode(place)
    try:
        if libc.mount(b"sexton-test", target, b"fuse", 0, options) != 0:
            pytest.skip(f"mount: {os.strerror(ctypes.get_errno())}")
        held = os.open(place, os.O_PATH | os.O_CLOEXEC)
        libc.umount2(target, _DETACH)
        try:
            yield f"/proc/self/fd/{held}"
        finally:
            os.close(held)
    finally:
        os.close(device)  # whatever waits gets "not connected"
