"""Print a shell script that collects data on a host without Python, for `diagnose`.

The script is POSIX sh. It takes snapshots of what `diagnose` would read and writes
them to standard output as one tar. It installs nothing and leaves nothing behind:

  sexton collect > collect.sh
  ssh node sh -s < collect.sh | sexton diagnose -
  ssh node sudo sh -s -- 30 < collect.sh > node.tar     30 seconds, as root
  sexton diagnose node.tar
"""

from __future__ import annotations

import argparse

from sexton.cli.options import whole_up_to

#: The script's parts, in the order it is read.
PARTS = ("main", "bundle", "snapshot", "groups", "lasting", "start")
_DEFAULT = "${SEXTON_SECONDS:-10}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        type=whole_up_to(3600),
        default=10,
        metavar="N",
        help="how long the script samples by default (default 10)",
    )


def run(args: argparse.Namespace) -> int:
    import sys

    sys.stdout.write(script(args.seconds))
    if sys.stdout.isatty():
        print("\n# sexton: save it with: sexton collect > collect.sh", file=sys.stderr)
    return 0


def script(seconds: int = 10) -> str:
    """The whole script; `seconds` is its default duration."""
    from importlib.resources import files

    folder = files("sexton.cli") / "collect"
    text = "\n".join((folder / f"{part}.sh").read_text("utf-8") for part in PARTS)
    return text.replace(_DEFAULT, _DEFAULT.replace("10", str(seconds)))
