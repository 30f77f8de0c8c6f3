"""Pieces of a report: headline, wrapped text, labelled text, commands that are never wrapped,
hints, and a record's fields for JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import Any

from sexton.model.text import shorten

LABEL = 10
#: Of the verdict, a terminal's number by exit status.
SHADES = {0: "32", 1: "31", 3: "33"}
#: A number and its unit stay on one line.
_UNIT = re.compile(r"(\d) (s|ms|µs|min|h|d|x|B|MB|KiB|MiB|GiB|TiB|%|Hz|cores?)(?!\w)")


def clamp(width: int, most: int = 110) -> int:
    """The width of a report on a terminal of `width` columns."""
    return min(max(width, 60), most)


def bold(text: str, colour: bool) -> str:
    """A title on a terminal that shows colours."""
    return f"\x1b[1m{text}\x1b[0m" if colour else text


def headline(word: str, rest: str, width: int, colour: str = "") -> list[str]:
    """The verdict first, the only coloured word; `colour` is a terminal's number of it."""
    lines = [*block(f"{word}  {rest}", width, "      ", first="")]
    if colour:
        lines[0] = f"\x1b[1;{colour}m{word}\x1b[0m" + lines[0].removeprefix(word)
    return lines


def labelled(label: str, items: Iterable[str], width: int, indent: int = LABEL) -> Iterator[str]:
    """Each item behind the label, which is printed once."""
    for number, item in enumerate(items):
        head = f" {label if number == 0 else '':<{indent}} "
        yield from block(item, width, " " * len(head), first=head)


def block(text: str, width: int, indent: str, first: str | None = None) -> Iterator[str]:
    """`text` in lines of at most `width`, those after the first behind `indent`."""
    lead = indent if first is None else first
    lines = wrap(
        _UNIT.sub("\\1\u00a0\\2", text),
        width,
        initial_indent=lead,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    yield from (line.replace("\u00a0", " ") for line in lines or [lead.rstrip()])


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns, without its end."""
    if width <= 0:
        return ""
    return text if len(text) <= width else text[: width - 1] + "…"


def typed(command: str) -> str:
    """A command on its own line, never wrapped, so that it can be copied."""
    return " " * (LABEL + 4) + shorten(command, 300)


def picked(record: object, *names: str) -> dict[str, Any]:
    """These fields of a record, for JSON."""
    return {name: getattr(record, name) for name in names}


def grant_for(grant: str, command: str) -> str:
    """A source's hint with `command` in place of `diagnose`, and without its comment.

    >>> grant_for("sudo sexton diagnose  # needs CAP_SYSLOG, or kernel.dmesg_restrict=0", "top")
    'sudo sexton top'
    >>> grant_for("sudo mount -t tracefs none /sys/kernel/tracing", "zombies")
    'sudo mount -t tracefs none /sys/kernel/tracing'
    """
    line, _, comment = grant.partition("  # ")
    if line != "sudo sexton diagnose":
        return grant
    where = "  # on the node itself" if comment.startswith("on the node") else ""
    return f"sudo sexton {command}{where}"
