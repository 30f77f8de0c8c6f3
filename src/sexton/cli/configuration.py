"""Finds ``/etc/sexton/config.toml`` and ``patterns.d``, refuses untrusted ones, and applies them.

These are the files of this machine, also when a recording, an archive or another tree is diagnosed.
A file that anyone can change could hide a problem or invent one, so it is refused.
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.model.settings import Settings
    from sexton.sources.kmsg.catalogue import Pattern

DEFAULT = "/etc/sexton/config.toml"
VARIABLE = "SEXTON_CONFIG"
#: As in `sexton.detect.settings`, which is imported only if there is a file to read.
PATTERNS = "/etc/sexton/patterns.d"
_MOST_BYTES = 256 << 10
_MOST_FILES = 50


def add_config(parser: argparse.ArgumentParser) -> None:
    """``--config FILE``; a command that has it runs with the settings in force."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"thresholds, detectors off and silences (default ${VARIABLE}, else {DEFAULT};"
        " '' for none)",
    )


@contextmanager
def configured(args: argparse.Namespace) -> Iterator[None]:
    """Run a command with its configuration in force, if it takes one."""
    if "config" not in args:
        yield
        return
    settings = read_settings(args.config)
    place = PATTERNS if settings is None else settings.patterns_from
    own = read_patterns(place) if place and _wanted(args.config) != "" else ()
    if settings is not None and not own and place not in ("", PATTERNS):
        _need_directory(place, settings.path)
    if settings is None and not own:
        yield
        return
    from dataclasses import replace

    from sexton.detect.registry import applied
    from sexton.model.settings import Settings
    from sexton.sources.kmsg.catalogue import added

    names = tuple(pattern.id for pattern in own)
    both = replace(settings or Settings(), patterns=names, patterns_from=place if own else "")
    with applied(both), added(own):
        yield


def _need_directory(place: str, path: str) -> None:
    """Fail if the directory that the file names does not exist: its patterns would be missed."""
    if not os.path.isdir(place):
        raise CommandError(f"{path}: patterns.directory: {place}: no such directory")


def read_patterns(place: str) -> tuple[Pattern, ...]:
    """The log patterns in a directory; none if it does not exist."""
    try:
        names = sorted(name for name in os.listdir(place) if name.endswith(".toml"))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise CommandError(f"{place}: {error.strerror} (--config '' ignores it)") from None
    if not names:
        return ()
    if len(names) > _MOST_FILES:
        raise CommandError(f"{place}: {len(names)} files; at most {_MOST_FILES}")
    from sexton.sources.kmsg.own import check_all, parse

    found: list[Pattern] = []
    for name in names:
        path = os.path.join(place, name)
        found += parse(_read(path, required=True) or "", path)
    return check_all(found)


def _wanted(given: str | None) -> str | None:
    """The requested file, by option or environment; "" requests none."""
    return given if given is not None else os.environ.get(VARIABLE)


def config_files(given: str | None) -> tuple[str, ...]:
    """The files that a run with this `--config` depends on, existing or not."""
    path = _wanted(given)
    if path == "":
        return ()
    from sexton.detect.registry import settings_in_force

    return (path or DEFAULT, settings_in_force().patterns_from or PATTERNS)


def read_settings(given: str | None) -> Settings | None:
    """The settings of `--config`, of the environment or of the default file, if there is one."""
    import time

    named = _wanted(given)
    path = DEFAULT if named is None else named
    if not path:
        return None
    text = _read(path, required=named is not None)
    if text is None:
        return None
    from sexton.detect.settings import parse

    return parse(text, path, time.time())


def _read(path: str, required: bool) -> str | None:
    if "\0" in path:
        raise CommandError("--config: a path cannot contain a NUL byte")
    try:
        # Open first, then check, so that it cannot be swapped in between. A FIFO does not block.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        if not required:
            return None
        raise CommandError(f"{path}: no such file") from None
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror} (--config '' ignores it)") from None
    with ExitStack() as opened:
        opened.callback(os.close, handle)
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise CommandError(f"{path}: not a regular file")
        if found.st_uid not in (0, os.geteuid()):
            raise CommandError(f"{path}: belongs to user {found.st_uid}; must be root's or yours")
        if found.st_mode & stat.S_IWOTH:
            raise CommandError(f"{path}: writable by everyone; run: chmod o-w FILE")
        stream = opened.enter_context(open(handle, "rb", closefd=False))
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise CommandError(f"{path}: larger than {_MOST_BYTES >> 10} KiB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CommandError(f"{path}: not UTF-8 at byte {error.start}") from None
