"""Output of the commands: standard streams, which may be closed, full or ASCII only, and files.

`width`, `colour` and `has_cursor` describe the terminal. A file is written whole or not at all.
"""

from __future__ import annotations

import argparse
import codecs
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from io import TextIOWrapper
from typing import Any, TextIO

from sexton.errors import CommandError

#: ASCII for the characters we draw with; each one column wide, so that tables stay aligned.
_PLAIN = str.maketrans("·…→└─━│░▒▓█µμ×÷–—−≤≥≈├▀▄►○●’“”\u00a0", '-.>`-=|.:=#uux/---<>~|##>o*\'"" ')
_HANDLER = "sexton.plain"
#: Locales whose only letters are ASCII. Python writes UTF-8 there all the same (PEP 540).
_ASCII_LOCALES = ("C", "POSIX")


def prepare() -> bool:
    """Make the streams safe to use; false without a standard output.

    A closed descriptor would be reused for the next file we open, and output meant for the stream
    would end up in it: so /dev/null takes its place first.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free one, which is `number`
    has_output = sys.stdout is not None
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as we run
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as we run
    codecs.register_error(_HANDLER, _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)
            if _is_ascii_locale() and not _encoding_given():
                stream.reconfigure(encoding="ascii", errors=_HANDLER)
    return has_output


def _is_ascii_locale() -> bool:
    """Whether the environment names an ASCII locale; one that names none means nothing.

    Python changes `LC_CTYPE` of the C locale at its start (PEP 538), and `utf8_mode` shows that.
    """
    if whole := os.environ.get("LC_ALL"):
        return whole in _ASCII_LOCALES
    return bool(sys.flags.utf8_mode) and os.environ.get("LANG") in _ASCII_LOCALES


def _encoding_given() -> bool:
    """Python's encoding is set explicitly, whatever the locale."""
    return bool(os.environ.get("PYTHONIOENCODING")) or os.environ.get("PYTHONUTF8") == "1"


def has_cursor(stream: TextIO) -> bool:
    """Whether it is a terminal with a movable cursor, so that a line can be overwritten."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def colour() -> bool:
    """Whether to use colours on standard output; decided only here (no-color.org)."""
    return has_cursor(sys.stdout) and not os.environ.get("NO_COLOR")


def width() -> int:
    """Columns of the terminal."""
    import shutil

    return shutil.get_terminal_size((88, 24)).columns


def print_json(document: Any, indent: int | None = 2) -> None:
    """Write JSON to standard output; without indent for matrices, to avoid a line per number."""
    import json

    json.dump(document, sys.stdout, indent=indent)
    sys.stdout.write("\n")


def print_result(args: argparse.Namespace, document: Any, text: str) -> None:
    """Print the document with --json, else the text."""
    if args.json:
        print_json(document)
    else:
        sys.stdout.write(text)


def abandon() -> None:
    """Drop further output: nobody reads it, and Python would complain at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that the encoding lacks: those we draw with by ASCII, others by ``?``."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(character if character.isascii() else "?" for character in lacking), error.end


#: Readable by its owner only: most output describes a node.
PRIVATE = 0o600


def write_whole(out: str, parts: Iterable[bytes], mode: int = PRIVATE) -> None:
    """Write a temporary file beside `out`, then rename it.

    A new file has this mode whatever the umask; a file of ours keeps its mode. A terminal, a pipe
    or /dev/null is written to and never replaced. In /tmp another user may have made what is at
    `out`: a symbolic link is replaced and not followed, and their pipe is refused. Failures are
    `CommandError`s.
    """
    if "\0" in out:
        raise CommandError("a path cannot contain a NUL byte")
    try:
        if _is_stream(out):
            # Without O_CREAT: if it is gone by now, no file is created in its place.
            handle = os.open(out, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY)
            with open(handle, "wb") as stream:
                stream.writelines(parts)
            return
        _replace(out, parts, _mode(out, mode))
    except OSError as error:
        raise CommandError(f"{out}: {error.strerror or error}") from None


def _replace(out: str, parts: Iterable[bytes], mode: int) -> None:
    temporary = f"{out}.{os.getpid()}.part"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    with ExitStack() as cleanup:
        cleanup.callback(os.unlink, temporary)
        with open(handle, "wb") as stream:
            stream.writelines(parts)
            stream.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        os.replace(temporary, out)
        cleanup.pop_all()


def _is_stream(out: str) -> bool:
    try:
        found = os.stat(out).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISBLK(found) or stat.S_ISSOCK(found):
        raise CommandError(f"{out}: is a {'disk' if stat.S_ISBLK(found) else 'socket'}, not a file")
    if _is_open_file(out):
        return True
    if not (stat.S_ISCHR(found) or stat.S_ISFIFO(found)):
        return False
    # Only what we or root made leads to a stream; a terminal belongs to the user of its session.
    for about in (os.stat(out, follow_symlinks=False), os.stat(out)):
        ours = about.st_uid in (0, os.geteuid())
        if not ours and (stat.S_ISLNK(about.st_mode) or stat.S_ISFIFO(about.st_mode)):
            raise CommandError(f"{out}: a pipe or link of user {about.st_uid}; not written to")
    return True


_OPEN_FILES = "/proc/self/fd"


def _is_open_file(out: str) -> bool:
    """Whether it is /dev/stdout or the like: a link to an open descriptor, even to a file."""
    place = os.path.dirname(os.path.abspath(out))
    if place in (_OPEN_FILES, "/dev/fd"):
        return True
    return place == "/dev" and os.path.islink(out) and os.readlink(out).startswith(_OPEN_FILES)


def _mode(out: str, new: int) -> int:
    """Mode for the new file: that of our own regular file, else `new`. The mode of a link or of
    another user's file is not kept."""
    try:
        found = os.stat(out, follow_symlinks=False)
    except FileNotFoundError:
        return new
    ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return found.st_mode & 0o777 if ours else new
