"""Which capture, and which part of it: options that the subcommands of `profile` share."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.profile.opened import Opened
    from sexton.profile.select import Selection

_NUMBER = re.compile(r"\+?([0-9]{1,8}(?:\.[0-9]{1,9})?)", re.ASCII)
_FINE = re.compile(r"(.*[0-9]{1,2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,9})(.*)", re.ASCII)
_TIME = "seconds from the start, or a clock time"
_HOW = "like 12.5 (seconds from the start), 10:15:30, 2026-11-15T10:15:00Z, 20m before the end"
#: A set of core numbers larger than this is a slip of the fingers.
_MOST_CORES = 65_536


def add_files(parser: argparse.ArgumentParser) -> None:
    """``FILE...`` and how to name what is in it."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="a capture, a rotated set or its directory, a recording, or - for standard input",
    )
    add_symbols(parser)


def add_symbols(parser: argparse.ArgumentParser) -> None:
    names = parser.add_argument_group("names of functions")
    names.add_argument(
        "--kallsyms", metavar="FILE", help="the kernel's symbols of the captured machine"
    )
    names.add_argument(
        "--symbols",
        metavar="DIR",
        action="append",
        default=[],
        help="where its programs and their debug files are; may be given again",
    )


def add_choice(parser: argparse.ArgumentParser) -> None:
    """``--from`` … ``--idle``."""
    add_range(parser)
    which = parser.add_argument_group("which samples (every condition must hold)")
    which.add_argument("--cpu", metavar="LIST", help="cores, like 0,3-5")
    which.add_argument("--pid", metavar="LIST", help="processes, like 2113,2200")
    which.add_argument("--task", metavar="RE", help="threads whose name has this in it")
    which.add_argument("--cgroup", metavar="RE", help="cgroups whose path has this in it")
    which.add_argument("--grep", metavar="RE", help="stacks with such a function in them")
    which.add_argument("--event", metavar="NAME", help="one event of several")
    which.add_argument("--idle", action="store_true", help="idle cores' samples too")


def add_range(parser: argparse.ArgumentParser) -> None:
    span = parser.add_argument_group("which time")
    span.add_argument("--from", dest="start", metavar="TIME", help=_TIME)
    span.add_argument("--to", dest="end", metavar="TIME", help="the same, exclusive")


def opened(args: argparse.Namespace) -> Opened:
    """What the files hold; every failure is one line."""
    return open_files(args, args.files)


def open_files(args: argparse.Namespace, files: list[str]) -> Opened:
    from os.path import exists
    from pathlib import Path

    from sexton.cli.options import need_recorder
    from sexton.cli.progress import working
    from sexton.profile.opened import open_profile
    from sexton.profile.symbols import SymbolOptions

    if any("\0" in each for each in (*files, *args.symbols, args.kallsyms or "")):
        raise CommandError("a path has no NUL in it")
    _known(files)
    for given in (*args.symbols, *([] if args.kallsyms is None else [args.kallsyms])):
        if not exists(given):
            raise CommandError(f"{given}: no such file or directory")
    if any((Path(each) / "segments").is_dir() for each in files):
        need_recorder()
    options = SymbolOptions(kallsyms=args.kallsyms, directories=tuple(args.symbols))
    with working("reading the capture"):
        return open_profile([Path(each) for each in files], options)


def same(args: argparse.Namespace) -> str:
    """The files and what names their functions, as a shell takes them again."""
    import shlex

    words = list(args.files)
    words += [] if args.kallsyms is None else ["--kallsyms", args.kallsyms]
    for each in args.symbols:
        words += ["--symbols", each]
    return shlex.join(words)


def _known(files: list[str]) -> None:
    """A word that is no file and looks like a subcommand most likely was meant as one."""
    from difflib import get_close_matches
    from os.path import lexists

    from sexton.cli.commands.profile import WHATS

    for each in files:
        if each == "-" or lexists(each):
            continue
        near = get_close_matches(each, WHATS, 1)
        hint = f"; did you mean `sexton profile {near[0]}`?" if near and each == files[0] else ""
        raise CommandError(f"{each}: no such file{hint}")


def selection_of(args: argparse.Namespace, found: Opened) -> Selection:
    """What `add_choice`'s options choose."""
    from sexton.profile.select import Selection

    start_ns, end_ns = range_of(args, found)
    asked = vars(args)  # a command need not offer all of them
    cpu, pid = asked.get("cpu"), asked.get("pid")
    return Selection(
        start_ns=start_ns,
        end_ns=end_ns,
        cpus=None if cpu is None else numbers(cpu, "--cpu"),
        pids=None if pid is None else numbers(pid, "--pid"),
        task=pattern(asked.get("task"), "--task"),
        cgroup=pattern(asked.get("cgroup"), "--cgroup"),
        stack=pattern(asked.get("grep"), "--grep"),
        event=event_of(args, found),
        idle=bool(asked.get("idle")),
    )


def range_of(args: argparse.Namespace, found: Opened) -> tuple[int | None, int | None]:
    start = None if args.start is None else moment_ns(args.start, found)
    end = None if args.end is None else moment_ns(args.end, found)
    if start is not None and end is not None and end <= start:
        raise CommandError(f"--to {args.end} is not after --from {args.start}")
    return start, end


def span_named(text: str, found: Opened) -> tuple[int | None, int | None]:
    """``FROM..TO``; either may be left out."""
    first, dots, last = text.partition("..")
    if not dots:
        raise CommandError(f"{text!r} is no span: FROM..TO, like 10..20 or 02:14..02:15")
    start = moment_ns(first, found) if first.strip() else None
    end = moment_ns(last, found) if last.strip() else None
    if start is not None and end is not None and end <= start:
        raise CommandError(f"the span {text!r} ends before it begins")
    return start, end


def moment_ns(text: str, found: Opened) -> int:
    """A time of the capture's own clock."""
    from sexton.cli.window import parse_moment

    span = found.span_ns
    if span is None:
        raise CommandError(f"{text}: this capture has no times to choose by")
    said = text.strip()
    if number := _NUMBER.fullmatch(said):
        return span[0] + round(float(number[1]) * 1e9)
    first, last = found.wall_s(span[0]), found.wall_s(span[1])
    if first is None or last is None:
        raise CommandError(
            f"{text}: this capture keeps no wall clock; say seconds from its start, like +12.5"
        )
    part = 0.0
    if fine := _FINE.fullmatch(said):
        said, part = fine[1] + fine[3], float(fine[2])
    try:
        moment = parse_moment(said, (first, last)) + part
    except CommandError:
        raise CommandError(f"{text!r} is no time: {_HOW}") from None
    time_ns = found.time_ns(moment)
    if time_ns is None:
        raise CommandError(f"{text}: nothing tells when that was on this capture's clock")
    return time_ns


def numbers(text: str, option: str) -> frozenset[int]:
    """``0,3-5``.

    >>> sorted(numbers("0,3-5", "--cpu"))
    [0, 3, 4, 5]
    """
    chosen: set[int] = set()
    for part in text.split(","):
        ends = re.fullmatch(r"\s*([0-9]{1,10})(?:-([0-9]{1,10}))?\s*", part, re.ASCII)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if last < first or last - first >= _MOST_CORES:
            raise CommandError(f"{option} {text!r}: give numbers and ranges, like 0,3-5")
        chosen.update(range(first, last + 1))
    return frozenset(chosen)


def pattern(text: str | None, option: str) -> re.Pattern[str] | None:
    if text is None:
        return None
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise CommandError(f"{option} {text!r} is no regular expression: {error}") from None


def event_of(args: argparse.Namespace, found: Opened) -> str | None:
    """One event of those that are there; where none is chosen, that they are added up is told."""
    name: str | None = args.event
    known = [each.name for each in found.events]
    if name is None and len(known) > 1:
        found.tell(
            f"{len(known)} events are counted together: {', '.join(known)}; --event takes one"
        )
    if name is not None and name not in known:
        raise CommandError(f"no event {name!r} in it; there are: {', '.join(known) or 'none'}")
    return name
