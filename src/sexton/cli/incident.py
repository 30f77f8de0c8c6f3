"""`--html FILE`: the verdict and its pictures in one file, for the incident's ticket."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from sexton.errors import CommandError

if TYPE_CHECKING:
    from pathlib import Path

    from sexton.model.diagnosis import Diagnosis
    from sexton.model.window import Window

#: What the text, the scripts and the styles around the numbers take at most.
_AROUND_BYTES = 400_000


def add_html(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="write verdict and pictures into one HTML file, too (0600, replaced if there)",
    )


def check_html(args: argparse.Namespace) -> None:
    """What can be known before ten seconds are spent on watching."""
    if args.html is None:
        return
    if "\0" in args.html:
        raise CommandError("a path has no NUL in it")
    if args.html in ("", "-"):
        raise CommandError("--html names a file: standard output has the verdict")
    if os.path.isdir(args.html):
        raise CommandError(f"{args.html}: Is a directory")
    folder = os.path.dirname(args.html) or "."
    if not os.path.isdir(folder):
        raise CommandError(f"{args.html}: No such directory")
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{args.html}: Permission denied")


def write_html(args: argparse.Namespace, diagnosis: Diagnosis, window: Window | None) -> None:
    """The file; the recording is drawn, or else the window, which is what was watched."""
    from sexton.cli.profile.capture import emit_text, report_written
    from sexton.explorer.files.incident_page import incident_html

    data, notes = _drawn(args, diagnosis, window)
    emit_text(incident_html(diagnosis, data, notes), args.html)
    report_written(args.html)


def _drawn(
    args: argparse.Namespace, diagnosis: Diagnosis, window: Window | None
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    import tempfile
    from importlib.util import find_spec
    from pathlib import Path

    if find_spec("pyarrow") is None:
        return None, ("Without pictures: these need pyarrow, pip install 'sexton[recorder]'.",)
    if window is None:
        return _numbers(Path(args.recording), diagnosis)
    from sexton.replay.window_recording import keep

    with tempfile.TemporaryDirectory(prefix="sexton-html-") as place:
        keep(window, Path(place, "recording"))
        return _numbers(Path(place, "recording"), diagnosis)


def _numbers(
    recording: Path, diagnosis: Diagnosis
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    from sexton.cli.progress import working
    from sexton.explorer.files.incident_data import MOST_BYTES, page_data, shortfall
    from sexton.explorer.tiles.view import View

    view = View.open(recording)
    # Those who help are forked before the line that moves, which is a thread.
    with view.crew() as crew, working("drawing"):
        view.warm(crew)
        data = page_data(view, diagnosis, MOST_BYTES - _AROUND_BYTES)
    return data, tuple(shortfall(data))
