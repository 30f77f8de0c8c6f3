"""All commands with their options, read from the parsers: for completion and man pages."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class Command(NamedTuple):
    """One command: its words after ``sexton`` (none for `sexton` itself) and its parser."""

    words: tuple[str, ...]
    summary: str
    parser: argparse.ArgumentParser

    @property
    def children(self) -> list[Command]:
        """Its subcommands, in the order of its help."""
        found = []
        for action in self.parser._actions:
            if not isinstance(action, argparse._SubParsersAction):
                continue
            lines = {line.dest: line.help or "" for line in action._choices_actions}
            for name, parser in action.choices.items():
                found.append(Command((*self.words, name), lines.get(name, ""), parser))
        return found

    @property
    def options(self) -> list[argparse.Action]:
        return [
            action
            for action in self.parser._actions
            if action.option_strings and action.help != argparse.SUPPRESS
        ]

    @property
    def positionals(self) -> list[argparse.Action]:
        return [
            action
            for action in self.parser._actions
            if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
        ]


def all_commands() -> Iterator[Command]:
    """`sexton` itself, then every command followed by its subcommands."""
    from sexton.cli.main import whole_parser

    pending = [Command((), "diagnose this Linux node, with evidence", whole_parser())]
    while pending:
        command = pending.pop(0)
        yield command
        pending[:0] = command.children


def words_of(action: argparse.Action) -> list[str]:
    """The values that an argument accepts; [] if it accepts any."""
    return [] if action.choices is None else [str(choice) for choice in action.choices]


def suggest(action: argparse.Action, words: Callable[[], Iterable[str]]) -> None:
    """Complete an argument with these words, although it accepts others as well."""
    action.suggested = words  # type: ignore[attr-defined]


def completions_of(action: argparse.Action) -> list[str]:
    """The words that a shell may offer for an argument."""
    return words_of(action) or list(getattr(action, "suggested", list)())


def takes_value(option: argparse.Action) -> bool:
    return option.nargs != 0


def help_of(action: argparse.Action) -> str:
    """Its help text on one line."""
    text = (action.help or "") % {**vars(action), "prog": "sexton"} if action.help else ""
    return " ".join(text.split())


#: Metavars of arguments that are files or directories.
_PATHS = {
    "FILE", "DIR", "PATH", "ARCHIVE", "IMAGE", "PLANFILE", "LAST.json",
}  # fmt: skip


def is_path(action: argparse.Action) -> bool:
    """Whether a file or directory is expected."""
    return isinstance(action.metavar, str) and action.metavar in _PATHS
