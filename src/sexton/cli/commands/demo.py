"""A real incident in the explorer, with a guided tour of two minutes.

Serves the recording that comes with Sexton: a unit that crash-loops, the dead cgroups it
leaves, the core that walks over them, the packets that wait for it, the reset, the job that
dies. The tour begins with the average that shows nothing, and ends with the cure.

  sexton demo                prints an address of this machine; open it in a browser
  sexton demo --open         opens it, too
  sexton demo --tour         the same steps as text, where there is no browser

What of it is real and what was injected stands in the file it names. Nothing is changed on
this machine, and nobody else can reach the page. Ctrl-C ends it.
"""

from __future__ import annotations

import argparse

from sexton.cli.commands.serve import port


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=port, default=0, metavar="N", help="default: any free one")
    parser.add_argument("--open", action="store_true", help="open it in a browser here")
    parser.add_argument(
        "--tour", action="store_true", help="print the tour as text, and serve nothing"
    )


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.cli.options import need_recorder, need_web

    (need_recorder if args.tour else need_web)()
    from sexton.cli.progress import working
    from sexton.explorer.server.tour import INCIDENT, read_cure, read_injected, scene_of, tour
    from sexton.explorer.tiles.view import View

    recording = INCIDENT / "recording"
    with working("reading the incident"):
        steps = tour(scene_of(View.open(recording), read_injected()), read_cure())
    if args.tour:
        import shutil

        from sexton.reports.text.tour import tour_text

        sys.stdout.write(tour_text(steps, shutil.get_terminal_size((88, 24)).columns))
        return 0
    from sexton.explorer.server.server import Setup, serve

    print(
        f"sexton: {steps['recording']}; what is real in it: {INCIDENT / 'README.md'}\n"
        "sexton: open this address in a browser; the arrow keys walk through the tour, "
        "Ctrl-C here ends it",
        file=sys.stderr,
    )
    return serve(Setup(recording, port=args.port, tour=steps, open=args.open))
