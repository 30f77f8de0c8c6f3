"""What the subcommands of `profile` share: opening a capture, filters, times and output."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from sexton.cli.options import add_json_format
from sexton.cli.output import colour, width, write_whole
from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.model.profile import Flame
    from sexton.profile.captures import Opened
    from sexton.profile.select import Selection
    from sexton.reports.text.heat import Terminal
    from sexton.reports.text.profile_head import Capture

_NUMBER = re.compile(r"\+?([0-9]{1,8}(?:\.[0-9]{1,9})?)", re.ASCII)
_FINE = re.compile(r"(.*[0-9]{1,2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})(.*)", re.ASCII)
_TIME = "seconds from the start, or a clock time"
_TIME_FORMS = (
    "use 12.5 (seconds from the start), 10:15:30, 2026-11-15T10:15:00Z or 20m (before the end)"
)
#: A longer range of numbers is a typo.
_MOST_NUMBERS = 65_536


def add_files(parser: argparse.ArgumentParser) -> None:
    """``FILE...`` and where to find its symbols."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="capture, rotated set or its directory, recording, or - for standard input",
    )
    add_symbols(parser)


def add_symbols(parser: argparse.ArgumentParser) -> None:
    names = parser.add_argument_group("symbols")
    names.add_argument("--kallsyms", metavar="FILE", help="/proc/kallsyms of the recorded boot")
    names.add_argument(
        "--symbols",
        metavar="DIR",
        action="append",
        default=[],
        help="directory with its programs and debug files; repeatable",
    )


def add_filters(parser: argparse.ArgumentParser) -> None:
    """``--from`` … ``--idle``."""
    add_range(parser)
    which = parser.add_argument_group("filters (all must match)")
    which.add_argument("--cpu", metavar="LIST", help="cores, e.g. 0,3-5")
    which.add_argument("--pid", metavar="LIST", help="processes, e.g. 2113,2200")
    which.add_argument("--task", metavar="RE", help="threads whose name matches")
    which.add_argument("--cgroup", metavar="RE", help="cgroups whose path matches")
    which.add_argument("--grep", metavar="RE", help="stacks with a matching function")
    which.add_argument("--event", metavar="NAME", help="one of several events")
    which.add_argument("--idle", action="store_true", help="include idle samples")


def add_range(parser: argparse.ArgumentParser) -> None:
    span = parser.add_argument_group("time range")
    span.add_argument("--from", dest="start", metavar="TIME", help=_TIME)
    span.add_argument("--to", dest="end", metavar="TIME", help="end of the range, exclusive")


def open_capture(args: argparse.Namespace, files: list[str] | None = None) -> Opened:
    """Open `files`, by default all of the command line; every failure is one line."""
    from os.path import exists
    from pathlib import Path

    from sexton.cli.options import need_recorder
    from sexton.cli.progress import working

    files = args.files if files is None else files
    if any("\0" in file for file in (*files, *args.symbols, args.kallsyms or "")):
        raise CommandError("NUL byte in a path")
    _require_existing(files)
    for given in (*args.symbols, *([] if args.kallsyms is None else [args.kallsyms])):
        if not exists(given):
            raise CommandError(f"{given}: no such file or directory")
    if any((Path(file) / "segments").is_dir() for file in files):
        need_recorder()
    _confine(args)
    from sexton.profile.captures import open_profile
    from sexton.profile.symbols import SymbolOptions

    options = SymbolOptions(kallsyms=args.kallsyms, directories=tuple(args.symbols))
    with working("reading the capture"):
        return open_profile([Path(file) for file in files], options)


def _confine(args: argparse.Namespace) -> None:
    """Captures are untrusted: bound their cost by their size. That of a pipe is known once it was
    copied, for which it may take any time."""
    from sexton.host.spool import STDIN, descriptor_of, spool
    from sexton.sandbox import confine, limits_for

    for file in args.files:
        spool(file)
    held = [descriptor_of(file) for file in args.files]
    paths = [
        file if number is None else f"/proc/self/fd/{number}"
        for file, number in zip(args.files, held, strict=True)
    ]
    limits = limits_for(*paths, *args.symbols)._replace(symbols=True)
    confine(limits._replace(what=STDIN if held[0] == 0 else args.files[0]))


def arguments_of(args: argparse.Namespace) -> str:
    """The files and symbol options, quoted for a shell."""
    import shlex

    words = list(args.files)
    words += [] if args.kallsyms is None else ["--kallsyms", args.kallsyms]
    for symbol in args.symbols:
        words += ["--symbols", symbol]
    return shlex.join(words)


def _require_existing(files: list[str]) -> None:
    """Suggest a subcommand for a missing file whose name looks like one."""
    from difflib import get_close_matches
    from os.path import lexists

    from sexton.cli.commands.profile import WHATS

    for file in files:
        if file == "-" or lexists(file):
            continue
        near = get_close_matches(file, WHATS, 1)
        hint = f"; did you mean `sexton profile {near[0]}`?" if near and file == files[0] else ""
        raise CommandError(f"{file}: no such file{hint}")


def selection_of(args: argparse.Namespace, found: Opened) -> Selection:
    """The selection that the options of `add_filters` describe."""
    from sexton.profile.select import Selection

    start_ns, end_ns = range_of(args, found)
    given = vars(args)  # not every command offers all options
    cpu, pid = given.get("cpu"), given.get("pid")
    return Selection(
        start_ns=start_ns,
        end_ns=end_ns,
        cpus=None if cpu is None else parse_numbers(cpu, "--cpu"),
        pids=None if pid is None else parse_numbers(pid, "--pid"),
        task=parse_pattern(given.get("task"), "--task"),
        cgroup=parse_pattern(given.get("cgroup"), "--cgroup"),
        stack=parse_pattern(given.get("grep"), "--grep"),
        event=event_of(args, found),
        idle=bool(given.get("idle")),
    )


def range_of(args: argparse.Namespace, found: Opened) -> tuple[int | None, int | None]:
    start = None if args.start is None else moment_ns(args.start, found)
    end = None if args.end is None else moment_ns(args.end, found)
    if start is not None and end is not None and end <= start:
        raise CommandError(f"--to {args.end} is not after --from {args.start}")
    return start, end


def parse_span(text: str, found: Opened) -> tuple[int | None, int | None]:
    """``FROM..TO``; either may be left out."""
    first, dots, last = text.partition("..")
    if not dots:
        raise CommandError(f"invalid span {text!r}: use FROM..TO, e.g. 10..20 or 02:14..02:15")
    start = moment_ns(first, found) if first.strip() else None
    end = moment_ns(last, found) if last.strip() else None
    if start is not None and end is not None and end <= start:
        raise CommandError(f"span {text!r} ends before it starts")
    return start, end


def moment_ns(text: str, found: Opened) -> int:
    """A time on the command line as a time of the capture's own clock."""
    from sexton.cli.window import parse_moment

    span = found.span_ns
    if span is None:
        raise CommandError(f"{text}: this capture has no timestamps")
    given = text.strip()
    if number := _NUMBER.fullmatch(given):
        return span[0] + round(float(number[1]) * 1e9)
    first, last = found.wall_s(span[0]), found.wall_s(span[1])
    if first is None or last is None:
        raise CommandError(
            f"{text}: this capture has no wall clock; use seconds from its start, e.g. +12.5"
        )
    part = 0.0
    if fine := _FINE.fullmatch(given):
        given, part = fine[1] + fine[3], float(fine[2])
    try:
        moment = parse_moment(given, (first, last)) + part
    except CommandError:
        raise CommandError(f"invalid time {text!r}: {_TIME_FORMS}") from None
    time_ns = found.time_ns(moment)
    if time_ns is None:
        raise CommandError(f"{text}: cannot be converted to this capture's clock")
    return time_ns


def parse_numbers(text: str, option: str) -> frozenset[int]:
    """``0,3-5``.

    >>> sorted(parse_numbers("0,3-5", "--cpu"))
    [0, 3, 4, 5]
    """
    chosen: set[int] = set()
    for part in text.split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,10})(?:-([0-9]{1,10}))?\s*", part, re.ASCII)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if last < first or last - first >= _MOST_NUMBERS:
            raise CommandError(f"{option} {text!r}: use numbers and ranges, e.g. 0,3-5")
        chosen.update(range(first, last + 1))
    return frozenset(chosen)


def parse_pattern(text: str | None, option: str) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise CommandError(f"{option} {text!r}: invalid regular expression: {error}") from None


def event_of(args: argparse.Namespace, found: Opened) -> str | None:
    """The event of `--event`. Without it all are added up, and a problem line reports that."""
    name: str | None = args.event
    known = [event.name for event in found.events]
    if name is None and len(known) > 1:
        found.add_problem(
            f"{len(known)} events added up: {', '.join(known)}; choose one with --event"
        )
    if name is not None and name not in known:
        raise CommandError(f"no event {name!r}; the capture has: {', '.join(known) or 'none'}")
    return name


def add_picture(parser: argparse.ArgumentParser, formats: tuple[str, ...]) -> None:
    """``--format``, ``--json``, ``--icicle`` and ``--out``."""
    parser.add_argument(
        "--format", choices=formats, help="default: by --out's extension, else text"
    )
    add_json_format(parser)
    parser.add_argument("--icicle", action="store_true", help="SVG: root at the top")
    add_out(parser)


def add_out(parser: argparse.ArgumentParser, required: bool = False) -> None:
    parser.add_argument(
        "--out", metavar="FILE", required=required, help="write to FILE (mode 0600)"
    )


def terminal() -> Terminal:
    """The width of the terminal and whether it can show colours."""
    from sexton.reports.text.heat import Terminal

    able = "utf" in sys.stdout.encoding.lower()  # half-blocks are drawn
    return Terminal(width(), able and colour())


def capture_of(found: Opened) -> Capture:
    """Facts about the capture, for the head of every report."""
    from functools import cache

    from sexton.reports.text.profile_head import Capture, Times

    span = found.span_ns
    times = Times(0 if span is None else span[0], found.wall_s)
    end_ns = None if span is None else span[1]
    events = tuple(event.name for event in found.events)
    return Capture(found.facts, times, end_ns, cache(lambda: found.samples), events)


def data_of(
    args: argparse.Namespace, found: Opened, selection: Selection, flame: Flame
) -> dict[str, Any]:
    """Data of the explorer's page for the samples that the options select."""
    from sexton.cli.profile.heatmap import heats_of
    from sexton.explorer.files.profile import Chosen, Samples, capture_data
    from sexton.model.text import printable

    span = found.span_ns or (0, 0)
    start = span[0] if selection.start_ns is None else max(selection.start_ns, span[0])
    end = span[1] + 1 if selection.end_ns is None else min(selection.end_ns, span[1] + 1)
    timed = found.span_ns is not None and end > start
    heats = heats_of(found, args, start, end) if timed else ()
    samples = Samples(heats, found.profiles(start, end) if timed else (), flame, found.hertz)
    return capture_data(
        capture_of(found), samples, Chosen(selection, printable(arguments_of(args)))
    )


def no_samples(found: Opened) -> CommandError:
    """The error for filters that match nothing, with the range that would."""
    if found.span_ns is None:
        return CommandError("no samples match")
    capture = capture_of(found)
    first, last = capture.times.clock(capture.times.start_ns), capture.times.clock(found.span_ns[1])
    return CommandError(f"no samples match; the capture covers {first} to {last}")


def deliver_text(text: str, out: str) -> None:
    deliver((text.encode("utf-8", "backslashreplace"),), out)


def emit(parts: Iterable[bytes], out: str | None) -> None:
    """Write to standard output, or to a file that is replaced only when complete."""
    if out is None or out == "-":
        sys.stdout.flush()
        for part in parts:
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        return
    write_whole(out, parts)


def encode(text: str, out: str | None) -> bytes:
    """Files are UTF-8; standard output (no `out`, or ``-``) has the encoding of its terminal."""
    if out is None or out == "-":
        return text.encode(sys.stdout.encoding, sys.stdout.errors or "strict")
    return text.encode("utf-8", "backslashreplace")


def deliver(parts: Iterable[bytes], out: str | None) -> None:
    """Write to standard output, or to a file whose path and size go to standard error."""
    from sexton.model.text import printable, size

    emit(parts, out)
    if out is None or out == "-":
        return
    with_size = f", {size(os.path.getsize(out))}" if os.path.isfile(out) else ""
    print(f"sexton: {printable(out)}{with_size}", file=sys.stderr)
