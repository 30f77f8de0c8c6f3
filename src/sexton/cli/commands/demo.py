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

from sexton.cli import output
from sexton.cli.commands.serve import port
from sexton.cli.options import add_json, need_recorder, need_web


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=port, default=0, metavar="N", help="default: any free port")
    parser.add_argument("--open", action="store_true", help="open a browser")
    parser.add_argument("--tour", action="store_true", help="print the tour as text and exit")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    printed = args.tour or args.json
    (need_recorder if printed else need_web)()
    from sexton.cli.progress import working
    from sexton.explorer.server.tour import INCIDENT, read_cure, read_injected, scene_of, tour
    from sexton.explorer.tiles.view import View

    recording = INCIDENT / "recording"
    with working("reading the incident"):
        steps = tour(scene_of(View.open(recording), read_injected()), read_cure())
    if args.json:
        output.print_json(steps)
        return 0
    if args.tour:
        from sexton.reports.text.tour import tour_text

        sys.stdout.write(tour_text(steps, output.width()))
        return 0
    from sexton.explorer.server.server import Setup, serve

    print(
        f"sexton: {steps['recording']}; what is real in it: {INCIDENT / 'README.md'}\n"
        "sexton: open this URL in a browser; arrow keys step through the tour, Ctrl-C stops",
        file=sys.stderr,
    )
    return serve(Setup(recording, port=args.port, tour=steps, open=args.open))
