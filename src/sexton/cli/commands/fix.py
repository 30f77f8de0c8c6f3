"""Do something about it: plan, apply, verify, roll back; nothing without a plan you have read.

  sudo sexton fix plan --out plan.json     what to do, what it risks, what undo cannot restore
  sudo sexton fix apply plan.json --confirm HASH --dry-run
  sudo sexton fix apply plan.json --confirm HASH
  sudo sexton fix verify                   ten minutes against pass criteria
  sudo sexton fix rollback                 put everything back, also after a crash half-way
  sudo sexton fix status, sexton fix log   what was done here, by whom

A plan stops the unit that leaves dead memory cgroups, sees that nothing starts it again,
and frees what it left on the parent that owns it. Units that a node lives by (kubelet,
container runtimes, sshd, network, storage) are refused with the reason; add your own in
/etc/sexton/protected.toml. Without apply nothing changes, and nothing acts unattended.
docs/fix.md tells all of it.
"""

from __future__ import annotations

import argparse

from sexton.cli.main import add_subcommands, run_subcommand

WHATS = ("plan", "apply", "verify", "rollback", "status", "log")
_PACKAGE = "sexton.cli.fix."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subcommands(parser, _PACKAGE, WHATS)


def run(args: argparse.Namespace) -> int:
    return run_subcommand(_PACKAGE, args)
