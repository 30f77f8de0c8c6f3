"""Fix the node without a reboot: plan, apply, verify, roll back.

  sudo sexton fix plan --out plan.json     steps, risks, and what undo cannot restore
  sudo sexton fix apply plan.json --confirm HASH --dry-run
  sudo sexton fix apply plan.json --confirm HASH
  sudo sexton fix verify                   watch ten minutes against pass criteria
  sudo sexton fix rollback                 undo an apply, also after a crash
  sudo sexton fix status, sexton fix log   what was done here, and by whom

A plan stops the unit that leaves dying memory cgroups, prevents it from starting again,
and frees the zombies it left. Units that the node depends on (kubelet, container runtimes,
sshd, network, storage) are refused with the reason; add your own in
/etc/sexton/protected.toml. Only apply and rollback change anything, and only when you run
them. See docs/fix.md.
"""

from __future__ import annotations

import argparse

from sexton.cli.main import add_subcommands, run_subcommand

WHATS = ("plan", "apply", "verify", "rollback", "auto", "status", "log")
_PACKAGE = "sexton.cli.fix."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_subcommands(parser, _PACKAGE, WHATS)


def run(args: argparse.Namespace) -> int:
    return run_subcommand(_PACKAGE, args)
