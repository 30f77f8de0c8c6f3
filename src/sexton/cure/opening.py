"""Paths opened one component after the other, so that no link on the way leads anywhere else.

``/etc/systemd/system/x.service.d/a.conf`` is four directories and a name; where one of the four is
a symbolic link, somebody else decides where we write, and it is refused. (`openat2` with
RESOLVE_NO_SYMLINKS does the same in one call, since 5.6; Python has no name for it.)
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from sexton.errors import CommandError
from sexton.model.text import printable

_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_PATH = 4095
_LONGEST_NAME = 255


def components(path: str) -> tuple[str, ...]:
    """The parts of an absolute path; one that could mean another place is refused.

    >>> components("/etc/systemd/system/x.service")
    ('etc', 'systemd', 'system', 'x.service')
    >>> components("/etc/../srv/x")
    Traceback (most recent call last):
    sexton.errors.CommandError: /etc/../srv/x: not a plain absolute path; refused
    """
    parts = path.split("/")
    if parts[0] or len(parts) < 2 or not all(map(_is_plain, parts[1:])):
        raise CommandError(f"{printable(path)}: not a plain absolute path; refused")
    if len(path) > _LONGEST_PATH:
        raise CommandError(f"{printable(path[:80])}…: too long a path; refused")
    return tuple(parts[1:])


def _is_plain(part: str) -> bool:
    try:
        length = len(os.fsencode(part))
    except UnicodeEncodeError:  # no name that the kernel could have given us
        return False
    return 0 < length <= _LONGEST_NAME and part not in (".", "..") and "\0" not in part


@contextlib.contextmanager
def opened_parent(path: str) -> Iterator[tuple[int, str]]:
    """The directory that holds `path`, opened, and the last name. `OSError` where it is absent."""
    *above, name = components(path)
    held = os.open("/", _STEP)
    try:
        here = ""
        for part in above:
            here = f"{here}/{part}"
            try:
                below = os.open(part, _STEP, dir_fd=held)
            except OSError as error:
                if error.errno == errno.ELOOP or (
                    error.errno == errno.ENOTDIR and _is_link(part, held)
                ):
                    raise CommandError(f"{printable(here)} is a link; refused") from None
                raise
            os.close(held)
            held = below
        yield held, name
    finally:
        os.close(held)


def _is_link(name: str, directory: int) -> bool:
    try:
        os.readlink(name, dir_fd=directory)
    except OSError:
        return False
    return True
