"""Where a report goes: standard output, or a file that is there whole or not at all."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sexton.cli.output import write_whole

if TYPE_CHECKING:
    from sexton.profile.opened import Opened
    from sexton.reports.text.heat import Look
    from sexton.reports.text.profile_head import Capture


def add_out(parser: argparse.ArgumentParser, required: bool = False) -> None:
    parser.add_argument(
        "--out", metavar="FILE", required=required, help="write it there (0600, replaced if there)"
    )


def look() -> Look:
    """The terminal's width and whether it has colours."""
    import shutil

    from sexton.reports.text.heat import Look

    able = sys.stdout.isatty() and "utf" in sys.stdout.encoding.lower()  # half-blocks are drawn
    wanted = os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
    return Look(shutil.get_terminal_size((88, 24)).columns, able and wanted)


def capture_of(found: Opened) -> Capture:
    """What every report says of the capture itself."""
    from functools import cache

    from sexton.reports.text.profile_head import Capture, Times

    span = found.span_ns
    times = Times(0 if span is None else span[0], found.wall_s)
    end_ns = None if span is None else span[1]
    events = tuple(each.name for each in found.events)
    return Capture(found.facts, times, end_ns, cache(lambda: found.samples), events)


def print_json(value: Any, indent: int | None = 2) -> None:
    """On standard output; matrices without indenting, which would give each number a line."""
    import json

    json.dump(value, sys.stdout, indent=indent)
    sys.stdout.write("\n")


def give(parts: Iterable[bytes], out: str | None) -> None:
    """Bytes to standard output, or to a file; a half-written file is never left."""
    if out is None or out == "-":
        sys.stdout.flush()
        for part in parts:
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        return
    write_whole(out, parts)


def give_text(text: str, out: str | None) -> None:
    give((text.encode("utf-8", "backslashreplace"),), out)


def written(out: str) -> None:
    """Say where it is, on standard error, so that a pipe stays clean."""
    from sexton.model.text import printable, size

    with_size = f", {size(os.path.getsize(out))}" if os.path.isfile(out) else ""
    print(f"sexton: {printable(out)}{with_size}", file=sys.stderr)
