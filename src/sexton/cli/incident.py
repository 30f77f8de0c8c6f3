"""`--html FILE`: the verdict and its charts in one file, for the incident's ticket."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from sexton.errors import CommandError

if TYPE_CHECKING:
    from pathlib import Path

    from sexton.model.diagnosis import Diagnosis
    from sexton.model.window import Window


def add_html(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--html",
        metavar="FILE",
        help="also write the verdict and charts to one HTML file (mode 0600, overwritten)",
    )


def check_html(args: argparse.Namespace) -> None:
    """Fail before measuring for ten seconds, not after."""
    if args.html is None:
        return
    if "\0" in args.html:
        raise CommandError("the path contains a NUL byte")
    if args.html in ("", "-"):
        raise CommandError("--html needs a file name: the verdict goes to standard output")
    if os.path.isdir(args.html):
        raise CommandError(f"{args.html}: Is a directory")
    folder = os.path.dirname(args.html) or "."
    if not os.path.isdir(folder):
        raise CommandError(f"{args.html}: No such directory")
    if not os.access(folder, os.W_OK):
        raise CommandError(f"{args.html}: Permission denied")


def write_html(args: argparse.Namespace, diagnosis: Diagnosis, window: Window | None) -> None:
    """Write the file from the recording, or from the live window."""
    from sexton.cli.profile.capture import deliver_text
    from sexton.explorer.files.incident import incident_html

    data, notes = _drawn(args, diagnosis, window)
    deliver_text(incident_html(diagnosis, data, notes), args.html)


def _drawn(
    args: argparse.Namespace, diagnosis: Diagnosis, window: Window | None
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    import tempfile
    from importlib.util import find_spec
    from pathlib import Path

    if find_spec("pyarrow") is None:
        return None, ("No charts: they need pyarrow, pip install 'sexton[recorder]'.",)
    if window is None:
        return _numbers(Path(args.recording), diagnosis)
    from sexton.store.writer import write_window

    with tempfile.TemporaryDirectory(prefix="sexton-html-") as place:
        write_window(window, Path(place, "recording"))
        return _numbers(Path(place, "recording"), diagnosis)


def _numbers(
    recording: Path, diagnosis: Diagnosis
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    from sexton.cli.progress import working
    from sexton.explorer.files.incident import page_data, shortfall
    from sexton.explorer.tiles.view import View

    view = View.open(recording)
    # Fork the readers before the progress line starts its thread.
    with working("drawing"):
        view.warm()
        data = page_data(view, diagnosis)
    return data, tuple(shortfall(data))
