"""Check and show the log of every decision of `sexton fix`.

  sudo sexton audit-log verify             was an entry changed, removed, inserted or moved?
  sudo sexton audit-log verify --known HASH   ... and is this entry in it?
  sudo sexton audit-log show               every entry, with its number

Each entry has the hash of the one before, and is synced to disk before anything is done.
See docs/kubernetes-remedies.md.
"""

from __future__ import annotations

import argparse

from sexton.cli.main import add_subcommands, run_subcommand

WHATS = ("verify", "show")
_PACKAGE = "sexton.cli.audit_log."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subcommands(parser, _PACKAGE, WHATS)


def run(args: argparse.Namespace) -> int:
    return run_subcommand(_PACKAGE, args)
