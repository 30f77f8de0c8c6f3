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

Where only Prometheus is, the series of node_exporter and of the kubelet are judged by the same
rules; what averages over a scrape interval cannot tell is unknown (docs/prometheus-source.md):

  sexton diagnose --prometheus http://prometheus:9090 --node n17         the last ten minutes
  sexton diagnose --prometheus URL --node n17 --around 03:12 --prometheus-config access.toml

For a ticket, the verdict and the pictures of `sexton serve` in one file that fetches nothing:

  sexton diagnose --from DIR --around 03:12 --html incident.html

Changes nothing on the node. As root it traces cgroup removals in a private tracefs
instance (64 kB per core), removed at the end; --no-trace leaves it out.
Exit: 0 healthy, 1 problem found, 2 failed, 3 could not tell.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from sexton.cli import output
from sexton.cli.configuration import add_config
from sexton.cli.options import add_json
from sexton.cli.prometheus import add_prometheus, check_prometheus, read_prometheus
from sexton.cli.window import (
    add_archive,
    add_live_options,
    add_recording,
    add_span,
    check_archive,
    check_key,
    check_recording,
    cost_of,
    is_archive,
    open_recording,
    read_archived,
    requested_span,
    watch,
)
from sexton.errors import CommandError

if TYPE_CHECKING:
    from pathlib import Path

    from sexton.model.diagnosis import Diagnosis
    from sexton.model.window import Window


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_archive(parser)
    add_json(parser)
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="also write the verdict and charts to one HTML file (mode 0600, overwritten)",
    )
    add_live_options(parser)
    add_recording(parser)
    add_prometheus(parser)
    add_span(parser)
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    _check(args)
    window = None
    if args.recording is not None:
        diagnosis = _recorded(args)
    elif args.prometheus is not None:
        diagnosis, window = _scraped(args)
    else:
        diagnosis, window = _sampled(args)
    if args.json:
        from sexton.reports.json.diagnosis import diagnosis_json

        output.print_json(diagnosis_json(diagnosis))
    else:
        from sexton.reports.text.verdict import verdict_text

        sys.stdout.write(verdict_text(diagnosis, output.width(), colour=output.colour()))
    if args.html is not None:
        sys.stdout.flush()  # print the verdict even if the file cannot be written
        _write_html(args, diagnosis, window)
    return int(diagnosis.exit)


def _check(args: argparse.Namespace) -> None:
    """Refuse options that exclude each other, and a FILE that cannot be written."""
    if args.html is not None:
        _check_html(args.html)
    if args.archive is None and args.recording is not None and is_archive(args.recording):
        args.archive, args.recording = args.recording, None
    check_key(args)
    check_prometheus(args)
    if args.prometheus is not None:
        return
    if args.recording is None and (args.around is not None or args.window is not None):
        raise CommandError("--around and --window require --from DIR or --prometheus URL")
    if args.recording is not None:
        if args.archive is not None:
            raise CommandError("a recording and an archive cannot be combined")
        check_recording(args)
    if args.archive is not None:
        check_archive(args)


def _sampled(args: argparse.Namespace) -> tuple[Diagnosis, Window]:
    from sexton.explain.diagnosis import diagnose

    if args.archive is not None:
        seen = read_archived(args.archive, *_outputs(args))
    else:
        seen = watch(args, "diagnose")
    return diagnose(*seen), seen[0]


def _scraped(args: argparse.Namespace) -> tuple[Diagnosis, Window]:
    from dataclasses import replace

    from sexton.cli.progress import working
    from sexton.explain.diagnosis import diagnose
    from sexton.model.diagnosis import Replayed

    with working("reading Prometheus"):
        found = read_prometheus(args)
        diagnosis = diagnose(found.window)
    cost = cost_of(found.window, "read from Prometheus")
    replayed = Replayed(f"Prometheus at {args.prometheus}", found.notes, scraped=True)
    return replace(diagnosis, cost=cost, replayed=replayed), found.window


def _recorded(args: argparse.Namespace) -> Diagnosis:
    import gc
    from dataclasses import replace

    from sexton.cli.progress import working
    from sexton.explain.diagnosis import diagnose
    from sexton.model.diagnosis import Replayed

    gc.disable()  # rows hold no cycles: looking for some would take an eighth of the time
    recording = open_recording(args.recording, key=args.key, writable=_outputs(args))
    from sexton.replay.window import window

    found = window(recording, requested_span(args, recording))
    with working("reading the recording"):
        diagnosis = diagnose(found.window, cost_of(found.window, "replayed from a recording"))
    replayed = Replayed(args.recording, found.notes)
    # Again, to include what the detectors used: they read the recording.
    cost = cost_of(found.window, "replayed from a recording")
    return replace(diagnosis, cost=cost, replayed=replayed)


def _outputs(args: argparse.Namespace) -> tuple[str, ...]:
    return () if args.html is None else (args.html,)


def _check_html(path: str) -> None:
    """Fail before measuring for ten seconds, not after."""
    if "\0" in path:
        raise CommandError("the path contains a NUL byte")
    if path in ("", "-"):
        raise CommandError("--html needs a file name: the verdict goes to standard output")
    if os.path.isdir(path):
        raise CommandError(f"{path}: Is a directory")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise CommandError(f"{path}: No such directory")
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{path}: Permission denied")


def _write_html(args: argparse.Namespace, diagnosis: Diagnosis, window: Window | None) -> None:
    """Write the file from the recording, or from the live window."""
    from sexton.cli.profile.capture import deliver_text
    from sexton.explorer.files.incident import incident_html

    data, notes = _charts(args, diagnosis, window)
    deliver_text(incident_html(diagnosis, data, notes), args.html)


def _charts(
    args: argparse.Namespace, diagnosis: Diagnosis, window: Window | None
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Data of the charts, and notes on what is missing."""
    import tempfile
    from importlib.util import find_spec
    from pathlib import Path

    if find_spec("pyarrow") is None:
        return None, ("No charts: they need pyarrow, pip install 'sexton[recorder]'.",)
    if window is None and args.key is not None:
        return None, ("No charts: they would show minutes that are not signed.",)
    if window is None:
        return _charts_of(Path(args.recording), diagnosis)
    from sexton.store.writer import write_window

    with tempfile.TemporaryDirectory(prefix="sexton-html-") as place:
        write_window(window, Path(place, "recording"))
        return _charts_of(Path(place, "recording"), diagnosis)


def _charts_of(recording: Path, diagnosis: Diagnosis) -> tuple[dict[str, Any], tuple[str, ...]]:
    from sexton.cli.progress import working
    from sexton.explorer.files.incident import page_data, shortfall
    from sexton.explorer.tiles.view import View

    view = View.open(recording)
    # Fork the readers before the progress line starts its thread.
    with working("drawing"):
        view.warm()
        data = page_data(view, diagnosis)
    return data, tuple(shortfall(data))
