"""Show the configuration in force: thresholds, detectors that are off, silences.

Reads and checks /etc/sexton/config.toml, the file in $SEXTON_CONFIG, or --config FILE.

  sexton config                    what differs from the defaults
  sexton config --all              every threshold, and where its value comes from
  sexton config --config new.toml  check a file before it is installed

Exit: 0 valid or no file, 2 something is wrong with it (one line says what).
"""

from __future__ import annotations

import argparse

from sexton.cli import output
from sexton.cli.configuration import add_config
from sexton.cli.options import add_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="list every threshold")
    add_json(parser)
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    from sexton.detect.registry import settings_in_force
    from sexton.reports.text.settings import config_json, config_text

    settings = settings_in_force()
    text = config_text(settings, output.width(), args.all)
    output.print_result(args, config_json(settings), text)
    return 0
