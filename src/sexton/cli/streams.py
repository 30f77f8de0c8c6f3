"""Standard streams that cannot fail us: closed ones, full ones, and those that know only ASCII."""

from __future__ import annotations

import codecs
import os
import sys
from io import TextIOWrapper

#: What we draw with, in letters that every terminal has; each one column wide, as tables need.
_PLAIN = str.maketrans(
    {
        "·": "-",
        "…": ".",
        "→": ">",
        "└": "`",
        "─": "-",
        "━": "=",
        "│": "|",
        "░": ".",
        "▒": ":",
        "▓": "=",
        "█": "#",
        "µ": "u",
        "×": "x",
        "÷": "/",
        "–": "-",
        "—": "-",
        "≤": "<",
        "≥": ">",
        "≈": "~",
        "−": "-",
        "μ": "u",
        "├": "|",
        "’": "'",
        "“": '"',
        "”": '"',
        "\u00a0": " ",
    }
)
_HANDLER = "sexton.plain"


def prepare() -> bool:
    """Make the streams safe to use; false where there is no standard output to write to.

    A descriptor that is closed would be given to the next file we open, whose bytes would then
    end in the wrong place: it is filled first.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free one, which is `number`
    open_for_us = sys.stdout is not None
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as we run
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as we run
    codecs.register_error(_HANDLER, _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)
    return open_for_us


def abandon() -> None:
    """Nobody reads standard output any more: keep the interpreter from complaining at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


def _plain(error: UnicodeError) -> tuple[str, int]:
    """For characters that the stream's encoding lacks: ours drawn plainly, others as ``?``."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].translate(_PLAIN)
    return "".join(each if each.isascii() else "?" for each in lacking), error.end
