"""`sexton completion fish`: a function that finds the command in the line, and a line per word."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from sexton.cli.tree import Command, all_commands, help_of, is_path, takes_value, words_of

_HEAD = """\
# fish completion for sexton. Written by: sexton completion fish
function __sexton_at
    set -l at
    set -l words (commandline -opc)
    for word in $words[2..-1]
        switch "$at $word"
            case {paths}
                set at "$at $word"
        end
    end
    test "$at" = "$argv[1]"
end
complete -c sexton -f
"""


def script() -> str:
    commands = list(all_commands())
    paths = " ".join(_quoted(_at(command)) for command in commands if command.words)
    lines = [_HEAD.format(paths=paths).rstrip("\n")]
    for command in commands:
        here = f"complete -c sexton -n {_quoted(f'__sexton_at {_quoted(_at(command))}')}"
        lines += [f"{here} {words}" for words in _words(command)]
    return "\n".join(lines) + "\n"


def _at(command: Command) -> str:
    return "".join(f" {word}" for word in command.words)


def _words(command: Command) -> Iterator[str]:
    for child in command.children:
        yield f"-a {child.words[-1]} -d {_quoted(child.summary)}"
    for argument in command.positionals:
        if words := words_of(argument):
            yield f"-a {_quoted(' '.join(words))}"
        elif is_path(argument):
            yield "-F"
    if command.words == ("profile",):  # a capture may follow directly
        yield "-F"
    for option in command.options:
        yield f"{_spellings(option)}{_value(option)} -d {_quoted(help_of(option))}"


def _spellings(option: argparse.Action) -> str:
    return " ".join(
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
        for name in option.option_strings
    )


def _value(option: argparse.Action) -> str:
    if not takes_value(option):
        return ""
    if words := words_of(option):
        return f" -x -a {_quoted(' '.join(words))}"
    return " -r -F" if is_path(option) else " -x"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
