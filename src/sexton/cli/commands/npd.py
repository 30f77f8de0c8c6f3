"""The last verdict, as a plug-in of node-problem-detector.

Prints one line of ASCII that begins with OK, PROBLEM or UNKNOWN, and exits with 0, 1 or 2.
It judges nothing itself: it reads what `sexton node-agent --npd FILE` wrote last, which
takes milliseconds. A verdict that is too old, of another boot or damaged is UNKNOWN.

  sexton npd                     reads /run/sexton/npd
  sexton npd FILE

deploy/node-problem-detector has its configuration, and the same as a shell script, since
the image of node-problem-detector has no Python.
"""

from __future__ import annotations

import argparse

#: node-problem-detector ends a plug-in after five seconds.
_MOST_S = 3.0
_DEFAULT = "/run/sexton/npd"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default=_DEFAULT, help=f"default {_DEFAULT}"
    )


def run(args: argparse.Namespace) -> int:
    from sexton.agent.result import read_in_time

    found = read_in_time(args.file, _MOST_S)
    print(found.line)
    return found.status
