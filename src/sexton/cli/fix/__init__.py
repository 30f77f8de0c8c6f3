"""The subcommands of `sexton fix`, one module each, and what they share."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from sexton.cli import output
from sexton.errors import CommandError, SourceAbsent, SourceError

if TYPE_CHECKING:
    from sexton.cure.journal import State
    from sexton.cure.nodes import Cluster
    from sexton.cure.protected import Rule


def add_state(parser: argparse.ArgumentParser) -> None:
    """``--state DIR``."""
    parser.add_argument(
        "--state",
        metavar="DIR",
        help="directory of journal, lock and audit log (default /var/lib/sexton-fix)",
    )


def add_id(parser: argparse.ArgumentParser) -> None:
    """``ID`` of an apply, optional."""
    parser.add_argument(
        "id", nargs="?", metavar="ID", help="ID of an apply (default: the last one)"
    )


def add_protected(parser: argparse.ArgumentParser) -> None:
    """``--protected FILE``."""
    parser.add_argument(
        "--protected",
        metavar="FILE",
        help="further units, processes and cgroups to protect (default /etc/sexton/protected.toml)",
    )


def state_of(args: argparse.Namespace) -> State:
    from sexton.cure.journal import DIRECTORY, State

    return State(os.path.abspath(args.state) if args.state else DIRECTORY)


def rules_of(args: argparse.Namespace) -> tuple[Rule, ...]:
    """The configured rules; a missing file is an error only if --protected names it."""
    from sexton.cure.protected import CONFIG, rules_of
    from sexton.host.reader import LiveFiles, text

    path = args.protected or CONFIG
    try:
        return rules_of(text(LiveFiles(), path, 1 << 20), path)
    except SourceAbsent:
        if args.protected:
            raise CommandError(f"{path}: no such file") from None
        return ()
    except SourceError as error:  # an unreadable list is not an empty one
        raise CommandError(
            f"{error}; refusing to go on without the list of protected units"
        ) from None


def cluster_of(args: argparse.Namespace, dry: bool = False) -> Cluster | None:
    """The API server, by `--kubeconfig` or as in a pod; `None` without a credential."""
    from sexton.cli.cluster import access_of

    access = access_of(args.kubeconfig, os.environ)
    if access is None:
        return None
    from sexton.cluster.client import ApiServer
    from sexton.cure.nodes import Cluster

    return Cluster(lambda: ApiServer(access), dry)


def need_root(what: str) -> None:
    if os.geteuid() != 0:
        raise CommandError(f"{what} needs root: sudo sexton fix {what}")


def print_progress(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


def terminal() -> tuple[int, bool]:
    """Width of the terminal, and whether to use colour."""
    return output.width(), output.colour()
