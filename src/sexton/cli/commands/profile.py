"""Analyse a perf capture: which seconds stand out, and which functions grew in them?

  sexton profile perf.data                        find spikes; no need to pick a range by eye
  sexton profile perf.data --at 02:14:07          what was different at that moment?
  sexton profile flame perf.data --from 127 --to 132 --cpu 5
  sexton profile report perf.data --out report.html

FILE is a perf.data (compressed too; - for a pipe), the files of a rotated set or their
directory, perf script text (.gz too), folded stacks, pprof, or a recording. To make one:

  sudo perf record -F 97 -a -g -k CLOCK_MONOTONIC -- sleep 120

TIME is seconds from the start of the capture (12.5, +12.5), or a clock time (10:15:30,
2026-11-15T10:15:00Z, @1794737700, 20m for 20 minutes before the end) if the capture has a
wall clock, as with -k CLOCK_MONOTONIC.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from sexton.cli.main import add_subcommands, run_subcommand

#: In the order a new user meets them; one module each in `sexton.cli.profile`.
WHATS = ("spikes", "info", "heatmap", "flame", "diff", "top", "timeline", "export", "report")
_PACKAGE = "sexton.cli.profile."


def words(given: Sequence[str]) -> list[str]:
    """The words after `profile`; a file in place of a subcommand means `spikes`.

    >>> words(["perf.data", "--json"]), words(["flame", "perf.data"]), words(["--help"]), words([])
    (['spikes', 'perf.data', '--json'], ['flame', 'perf.data'], ['--help'], [])
    """
    if not given or given[0] in WHATS or given[0] in ("-h", "--help"):
        return list(given)
    return ["spikes", *given]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subcommands(parser, _PACKAGE, WHATS)


def run(args: argparse.Namespace) -> int:
    return run_subcommand(_PACKAGE, args)
