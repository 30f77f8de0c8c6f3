"""What the subcommands of `fix` share: the state directory, the protected units, the output."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sexton.cure.protected import Rule
    from sexton.cure.state import State


def add_state(parser: argparse.ArgumentParser) -> None:
    """``--state DIR``."""
    parser.add_argument(
        "--state",
        metavar="DIR",
        help="where journal, lock and audit log are (default /var/lib/sexton-fix)",
    )


def add_protected(parser: argparse.ArgumentParser) -> None:
    """``--protected FILE``."""
    parser.add_argument(
        "--protected",
        metavar="FILE",
        help="more units, processes and cgroups to leave alone"
        " (default /etc/sexton/protected.toml)",
    )


def state_of(args: argparse.Namespace) -> State:
    import os

    from sexton.cure.state import DIRECTORY, State

    return State(os.path.abspath(args.state) if args.state else DIRECTORY)


def rules_of(args: argparse.Namespace) -> tuple[Rule, ...]:
    """The configured rules; a file that was named and is not there is a mistake."""
    from sexton.cure.protected import CONFIG, rules_of
    from sexton.errors import CommandError, SourceAbsent, SourceError
    from sexton.host.reader import LiveFiles, text

    path = args.protected or CONFIG
    try:
        return rules_of(text(LiveFiles(), path, 1 << 20), path)
    except SourceAbsent:
        if args.protected:
            raise CommandError(f"{path}: no such file") from None
        return ()
    except SourceError as error:  # protected units that cannot be read are not "none"
        raise CommandError(
            f"{error}; nothing is planned without knowing what is protected"
        ) from None


def need_root(what: str) -> None:
    import os

    from sexton.errors import CommandError

    if os.geteuid() != 0:
        raise CommandError(f"{what} needs root: sudo sexton fix {what}")


def show(args: argparse.Namespace, told: dict[str, Any], text: str) -> None:
    """JSON where it was asked for, else the text."""
    import json
    import sys

    if args.json:
        json.dump(told, sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.write(text)


def page() -> tuple[int, bool]:
    """Width of the terminal, and whether it takes colour."""
    import shutil
    import sys

    return shutil.get_terminal_size((88, 24)).columns, sys.stdout.isatty()
