"""What is wrong with this node, and how do you know?

Watches the node for a few seconds, then prints the verdict first: one paragraph, the
cause chain with normal and current values and where they were read, the evidence
against it, what could not be seen and the command that would show it, and what to do.

  sexton diagnose                       this node, ten seconds
  sudo sexton diagnose                  with the kernel log and every owner
  sexton diagnose --root /host          the host's tree, from inside a container
  sexton collect > collect.sh           for a node without Python:
  ssh node sh -s < collect.sh | sexton diagnose -

A recording is diagnosed by the same rules, even while `sexton record` is still running:

  sexton diagnose --from /var/lib/sexton                      all of it
  sexton diagnose --from DIR --around 03:12                   five minutes on either side
  sexton diagnose --from DIR --window 2026-11-15T03:00..04:30 from one time to another
  sexton diagnose --from DIR --window 20m..                   the last twenty minutes

For a ticket, the verdict and the pictures of `sexton serve` in one file that fetches nothing:

  sexton diagnose --from DIR --around 03:12 --html incident.html

Changes nothing on the node. As root it traces cgroup removals in a private tracefs
instance (64 kB per core), removed at the end; --no-trace leaves it out.
Exit: 0 healthy, 1 problem found, 2 failed, 3 could not tell.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli import output
from sexton.cli.configuration import add_config
from sexton.cli.incident import add_html, check_html, write_html
from sexton.cli.options import add_json
from sexton.cli.window import (
    add_live_options,
    add_recording,
    add_span,
    check_archive,
    check_recording,
    cost_of,
    is_archive,
    open_recording,
    read_archived,
    read_back,
    requested_span,
    watch,
)
from sexton.errors import CommandError

if TYPE_CHECKING:
    from sexton.model.diagnosis import Diagnosis
    from sexton.model.window import Window


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "archive",
        nargs="?",
        metavar="ARCHIVE",
        help="a tar made by the script of `sexton collect`; - reads it from standard input",
    )
    add_json(parser)
    add_html(parser)
    add_live_options(parser)
    add_recording(parser)
    add_span(parser)
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    _check(args)
    window = None
    if args.recording is not None:
        diagnosis = _recorded(args)
    else:
        diagnosis, window = _seen(args)
    if args.json:
        from sexton.reports.json.diagnosis import diagnosis_json

        output.print_json(diagnosis_json(diagnosis))
    else:
        from sexton.reports.text.verdict import verdict_text

        sys.stdout.write(verdict_text(diagnosis, output.width(), colour=output.colour()))
    if args.html is not None:
        sys.stdout.flush()  # whatever becomes of the file, the verdict is not lost
        write_html(args, diagnosis, window)
    return int(diagnosis.exit)


def _check(args: argparse.Namespace) -> None:
    """Options that exclude each other."""
    check_html(args)
    if args.archive is None and args.recording is not None and is_archive(args.recording):
        args.archive, args.recording = args.recording, None
    if args.recording is None and (args.around is not None or args.window is not None):
        raise CommandError("--around and --window require --from DIR")
    if args.recording is not None:
        if args.archive is not None:
            raise CommandError("a recording and an archive cannot be combined")
        check_recording(args)
    if args.archive is not None:
        check_archive(args)


def _seen(args: argparse.Namespace) -> tuple[Diagnosis, Window]:
    from sexton.explain.diagnosis import diagnose

    seen = read_archived(args.archive) if args.archive is not None else watch(args, "diagnose")
    return diagnose(*seen), seen[0]


def _recorded(args: argparse.Namespace) -> Diagnosis:
    import gc
    from dataclasses import replace

    from sexton.cli.progress import working
    from sexton.explain.diagnosis import diagnose
    from sexton.model.diagnosis import Replayed

    gc.disable()  # rows hold no cycles: looking for some would take an eighth of the time
    recording = open_recording(args.recording)
    found = read_back(recording, requested_span(args, recording))
    with working("reading the recording"):
        diagnosis = diagnose(found.window, cost_of(found.window, "replayed from a recording"))
    replayed = Replayed(args.recording, found.notes)
    # What the detectors took counts too: a night of readings is theirs to look at.
    cost = cost_of(found.window, "replayed from a recording")
    return replace(diagnosis, cost=cost, replayed=replayed)
