"""Opening an image (`--root` of gate and audit) within limits, and not waiting for a hung mount."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sexton.host.hung import unless_hung
from sexton.prevent.image import Image
from sexton.sandbox import Limits, confine, limits_for

#: Unit files and configuration of a directory: a large image has 20 MB of them.
_DIRECTORY_BYTES, _DIRECTORY_S = 500 << 20, 60
_BOOTED_BYTES = 2 << 30


@contextmanager
def opened(path: str) -> Iterator[Image]:
    """The image at `path`. A file is read by a confined process from its first byte on."""
    limits = unless_hung(lambda: _limits(path), path)
    if limits is not None:
        confine(limits)
    with unless_hung(lambda: Image(path), path) as image:
        yield image


def _limits(path: str) -> Limits | None:
    return None if os.path.isdir(path) else limits_for(path)


def confine_directory(path: str, booted: bool) -> None:
    """A directory is opened before it is known what it holds: the tree of a running host is
    watched for as long as the policy says, and its cgroups are counted by programs."""
    if not unless_hung(lambda: os.path.isdir(path), path):
        return
    if booted:
        confine(Limits(_BOOTED_BYTES, None, live=True))
    else:
        confine(Limits(_DIRECTORY_BYTES, _DIRECTORY_S))
