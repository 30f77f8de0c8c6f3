"""An incident recorded in the lab, in the explorer, with a two-minute guided tour.

Serves the recording that ships with Sexton: a crash-looping unit, the dying cgroups it
leaves, the core that walks them, the packets that wait for that core, the NIC reset and the
job that dies. The tour starts at an average that shows nothing and ends with the fix.

  sexton demo                print a local URL to open in a browser
  sexton demo --open         open it
  sexton demo --tour         print the same steps as text; --json for machines

The README it names says what is real and what was injected. Nothing on this machine is
changed, and the page is on loopback only. Press Ctrl-C to stop.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sexton.cli import output
from sexton.cli.commands.serve import port
from sexton.cli.options import add_json, need_recorder, need_web

if TYPE_CHECKING:
    from sexton.explorer.tiles.view import View


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=port, default=0, metavar="N", help="default: any free port")
    parser.add_argument("--open", action="store_true", help="open a browser")
    parser.add_argument("--tour", action="store_true", help="print the tour as text and exit")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    printed = args.tour or args.json
    (need_recorder if printed else need_web)()
    from sexton.explorer.server.tour import INCIDENT

    recording = INCIDENT / "recording"
    return _print(recording, args.json) if printed else _serve(recording, args)


def _print(recording: Path, as_json: bool) -> int:
    import sys

    from sexton.explorer.tiles.view import View

    steps = _steps(View.open(recording))
    if as_json:
        output.print_json(steps)
        return 0
    from sexton.reports.text.tour import tour_text

    sys.stdout.write(tour_text(steps, output.width()))
    return 0


def _serve(recording: Path, args: argparse.Namespace) -> int:
    import sys

    from sexton.explorer.server.server import Setup, serve

    def announced(view: View) -> Mapping[str, Any]:
        steps = _steps(view)
        print(
            f"sexton: {steps['recording']}; what is real in it: {recording.parent / 'README.md'}\n"
            "sexton: open this URL in a browser; arrow keys step through the tour, Ctrl-C stops",
            file=sys.stderr,
        )
        return steps

    return serve(Setup(recording, port=args.port, tour=announced, open=args.open))


def _steps(view: View) -> Mapping[str, Any]:
    from sexton.cli.progress import working
    from sexton.explorer.server.tour import read_cure, read_injected, scene_of, tour

    with working("reading the incident"):
        return tour(scene_of(view, read_injected()), read_cure())
