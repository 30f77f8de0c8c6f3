"""Commands that are modules: each has a docstring (its help), `add_arguments` and `run`."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

    #: What `add_subparsers` gives back has no public name.
    Choices = argparse._SubParsersAction[Any]


def add_module(choices: Choices, package: str, name: str) -> ModuleType:
    """One command of a package, with its help and its arguments."""
    module = importlib.import_module(package + name)
    doc = (module.__doc__ or name).strip()  # python -OO has no docstrings
    child = choices.add_parser(
        name,
        help=doc.splitlines()[0].rstrip("."),
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(child)
    return module


def add_all(parser: argparse.ArgumentParser, package: str, names: Iterable[str]) -> None:
    """The subcommands of a command: `sexton fix plan`."""
    choices = parser.add_subparsers(title="what to do", metavar="WHAT", dest="what", required=True)
    for name in names:
        add_module(choices, package, name)


def run_chosen(package: str, args: argparse.Namespace) -> int:
    """The one of them that was asked for."""
    status: int = importlib.import_module(package + args.what).run(args)
    return status
