"""Show, verify or export a recording, or mark a moment.

  sexton recording info DIR                     what it holds: span, alarms, tables, cost
  sexton recording verify DIR                   read every byte: is it intact?
  sexton recording mark DIR "job 17 died"       pin the minutes around now
  sexton recording export DIR --out PATH        a file per table, or a smaller recording

DIR is what `sexton record DIR` writes. All of them work while it is recording.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from sexton.cli import output
from sexton.cli.options import add_json, add_key, need_recorder
from sexton.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from sexton.model.row import Row
    from sexton.store.export import Span
    from sexton.store.pins import Pin
    from sexton.store.recording import Recording

#: An hour of 96 cores as JSON lines takes ten times as long as its diagnosis.
_EXPORT_TIMES = 5
_MARK_SCHEMA = "sexton.recording.mark/1"
_EXPORT_SCHEMA = "sexton.recording.export/1"
_INFO = """\
What a recording holds, from its manifests: node and span, gaps and boots, alarms and
marks, tables with their periods and sizes, missing sources and why, the recorder's
configuration and cost, and what readers must skip. Fast on any size. Exit: 0.
"""
_VERIFY = """\
Read every byte and report what is damaged or invalid.

  damaged   a file is not what was sealed or flushed, cannot be decoded, or is missing
  foreign   not written by a recorder; readers skip it
  torn      a recorder was killed while it wrote: at most its last flush is lost.
            Reported, but not an error

With --key PUB it also checks who sealed it (`record --sign-key`), and that no segment is
missing between two others. What is still open is not signed yet, and is listed.

Exit: 0 intact and valid, 1 something is damaged or foreign, 2 not a recording, or not
signed with this key.
"""
_EXPORT = """\
Write parts of a recording to files for other programs and other people.

  sexton recording export DIR --out night                       a Parquet file per table
  sexton recording export DIR --out cores --table core_times --format csv
  sexton recording export DIR --out ten --around 10:15 --format recording
  sexton recording export DIR --out it --pin PIN --format recording

`--format recording` copies whole segments, with the rings and stacks of their time, into
a new directory that every command can read, for example to send "the ten minutes around
the reset". In jsonl and csv text is escaped (docs/json.md); csv puts an apostrophe before
what a spreadsheet would take for a formula. All files are 0600.
Exit: 0 all of it, 1 all but what is damaged, 2 failed.
"""
_MARK = """\
Record that something happened. A running recorder notices within a second, pins the
minutes around it beyond retention and reads tables every second for a minute. If no
recorder runs, the five minutes before and the two after are pinned at once.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_subparsers(title="commands", metavar="COMMAND", dest="what", required=True)

    def add(name: str, doc: str, help_line: str) -> argparse.ArgumentParser:
        child: argparse.ArgumentParser = what.add_parser(
            name,
            help=help_line,
            description=doc,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        child.add_argument("directory", metavar="DIR", help="the recording")
        return child

    add_json(add("info", _INFO, "Show what it holds: span, alarms, tables, cost"))
    verify = add("verify", _VERIFY, "Read every byte: is it intact?")
    add_key(verify)
    add_json(verify)
    mark = add("mark", _MARK, "Pin the minutes around now")
    mark.add_argument("text", metavar="TEXT", help="what happened, at most 500 characters")
    add_json(mark)
    _add_export(add("export", _EXPORT, "Write parts of it to files"))


def _add_export(parser: argparse.ArgumentParser) -> None:
    from sexton.cli.window import add_span

    parser.add_argument("--out", required=True, metavar="PATH", help="a directory to write to")
    parser.add_argument(
        "--table", action="append", metavar="NAME", help="only this table; repeatable"
    )
    add_span(parser)
    parser.add_argument(
        "--pin", action="append", metavar="ID", help="a pinned span, by its id in `info --json`"
    )
    parser.add_argument(
        "--format",
        choices=("parquet", "jsonl", "csv", "recording"),
        default="parquet",
        help="file format (default parquet)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    if "\0" in args.directory:
        raise CommandError("a path cannot contain NUL")
    if args.what == "mark":  # works where the store's own extra is not installed
        return _mark(args)
    need_recorder()
    return {"info": _info, "verify": _verify, "export": _export}[args.what](args)


def _info(args: argparse.Namespace) -> int:
    from sexton.cli.window import open_recording

    recording = open_recording(args.directory)
    from sexton.reports.text.recording import info_json, info_text
    from sexton.store.summary import summarise

    found = summarise(recording)
    text = info_text(found, output.width(), colour=output.colour())
    output.print_result(args, info_json(found), text)
    return 0


def _verify(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sexton.cli.progress import steps
    from sexton.cli.window import check_signatures, confine_to

    signed = None if args.key is None else check_signatures(args.directory, args.key)
    confine_to(args.directory)
    from sexton.profile.recorded import check_annex, check_perf
    from sexton.profile.symbols.cache import check_names
    from sexton.reports.text.recording import verify_json, verify_text
    from sexton.store.verify import Checks, verify

    with steps("reading") as tick:
        found = verify(Path(args.directory), tick, Checks(check_annex, check_perf, check_names))
    output.print_result(args, verify_json(found, signed), verify_text(found, signed))
    return 0 if found.whole else 1


def _mark(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sexton.store.layout import is_locked
    from sexton.store.pins import leave_mark, pin_mark, remark_now

    directory = Path(args.directory)
    if not (directory / "segments").is_dir():
        raise CommandError(f"{directory}: not a recording: it has no segments/")
    remark = remark_now(args.text, _boot_id())
    try:
        recording_now = is_locked(directory)
        pin = None
        if recording_now:
            leave_mark(directory, remark)
            message = "the recorder will pin the minutes around it"
        else:
            pin = pin_mark(directory, remark).id
            message = f"no recorder is running, so the last 5 minutes recorded are pinned as {pin}"
    except OSError as error:
        raise CommandError(f"{directory}: {error.strerror}") from None
    if args.json:
        made = {"text": remark.text, "time": remark.wall_s, "recording_now": recording_now}
        output.print_json({"schema": _MARK_SCHEMA, **made, "pin": pin})
    else:
        print(f"marked: {remark.text}; {message}")
    return 0


def _boot_id() -> str:
    from sexton.host.host import open_host
    from sexton.host.reader import text

    return text(open_host("/").files, "/proc/sys/kernel/random/boot_id").strip()


def _export(args: argparse.Namespace) -> int:
    import sys
    from pathlib import Path

    from sexton.cli.progress import steps
    from sexton.cli.window import open_recording
    from sexton.model.text import count, printable, size

    out = Path(args.out)
    if out.resolve().is_relative_to(Path(args.directory).resolve()):
        raise CommandError(f"--out {args.out} is inside the recording")
    recording = open_recording(args.directory, times=_EXPORT_TIMES, writable=(str(out.parent),))
    from sexton.store.export import Wanted, export_recording, export_tables, touched
    from sexton.store.pins import pins_in

    pins, _ = pins_in(recording.path)
    spans = _spans(args, recording, pins)
    whole = args.format == "recording"
    if whole and (args.table or args.force):
        raise CommandError("--format recording copies whole segments: no --table, no --force")
    if spans and not touched(recording, spans):
        raise CommandError(f"{recording.path}: nothing was recorded at that time")
    place = printable(str(out))
    document: dict[str, Any] = {"schema": _EXPORT_SCHEMA, "out": place, "format": args.format}
    try:
        with steps("exporting") as tick:
            if whole:
                number, held = export_recording(recording, out, touched(recording, spans), pins)
                document |= {"files": number, "bytes": held, "tables": None}
                _say(args, f"{place}: a recording of {count(number, 'file')}, {size(held)}")
            else:
                wanted = Wanted(_kinds(args.table), spans, args.format, args.force)
                tables, step = [], _bounded(tick, out)
                made_tables = export_tables(recording, out, wanted, step)
                step(1, 1)
                for made in made_tables:
                    file = printable(str(made.path))
                    tables.append({"path": file, "rows": made.rows})
                    _say(args, f"{file}: {count(made.rows, 'row')}")
                document |= {"files": len(tables), "bytes": None, "tables": tables}
    except OSError as error:
        where = error.filename or out
        raise CommandError(f"{where}: {error.strerror or error}") from None
    if args.json:
        document["skipped"] = [printable(problem) for problem in recording.problems]
        output.print_json(document)
    for problem in recording.problems:
        print(f"sexton: skipped: {problem}", file=sys.stderr)
    return 1 if recording.problems else 0


def _bounded(tick: Callable[[int, int], None] | None, out: Path) -> Callable[[int, int], None]:
    """The same, but what was written so far may not be too large for the recording: a few rows of
    it can stand for gigabytes."""
    from sexton.sandbox import most_written

    def used() -> int:
        return sum(file.stat().st_size for file in out.iterdir()) if out.is_dir() else 0

    before, most = used(), most_written()

    def checked(done: int, total: int) -> None:
        if used() - before > most:
            raise CommandError(f"{out}: more than {most:,.0f} bytes, too large for its recording")
        if tick is not None:
            tick(done, total)

    return checked


def _say(args: argparse.Namespace, line: str) -> None:
    """Print a line at once; with --json one document follows at the end."""
    if not args.json:
        print(line)


def _kinds(names: Sequence[str] | None) -> list[type[Row]]:
    from sexton.store.schema import tables

    known = tables()
    for name in names or ():
        if name not in known:
            raise CommandError(f"no table {name!r}; there are: {', '.join(sorted(known))}")
    return [known[name] for name in dict.fromkeys(names or ())]


def _spans(args: argparse.Namespace, recording: Recording, pins: Sequence[Pin]) -> list[Span]:
    from sexton.cli.window import parse_span
    from sexton.replay.span import edges
    from sexton.store.export import Span, span_of

    span = None
    if args.around is not None or args.window is not None:
        span = parse_span(args, edges(recording))
    found = [] if span is None else [Span(*span)]
    by_id = {pin.id: pin for pin in pins}
    for name in args.pin or ():
        if name not in by_id:
            raise CommandError(f"no pin {name!r}; there are: {', '.join(sorted(by_id)) or 'none'}")
        found.append(span_of(by_id[name]))
    return found
