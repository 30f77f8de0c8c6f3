"""`sexton completion zsh`: one function per command, with its options for `_arguments`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from sexton.cli.tree import Command, all_commands, help_of, is_path, takes_value, words_of


def script() -> str:
    lines = ["#compdef sexton", "# zsh completion for sexton. Written by: sexton completion zsh"]
    for command in all_commands():
        lines += ["", f"{_function(command)}() {{", *_body(command), "}"]
    lines += ["", 'if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _sexton "$@"']
    lines += ["else compdef _sexton sexton; fi"]
    return "\n".join(lines) + "\n"


def _function(command: Command) -> str:
    return "_".join(("_sexton", *command.words))


def _body(command: Command) -> Iterator[str]:
    specs = [spec for option in command.options for spec in _option(option)]
    if not command.children:
        specs += [_argument(argument) for argument in command.positionals]
        yield from _arguments("  _arguments -s", specs)
        return
    yield "  local curcontext=$curcontext state line"
    yield "  typeset -A opt_args"
    yield from _arguments("  _arguments -C", [*specs, "'1: :->command'", "'*:: :->rest'"])
    yield "  case $state in"
    yield "  command)"
    yield "    local -a commands=("
    for child in command.children:
        yield f"      {_quoted(f'{child.words[-1]}:{_plain(child.summary)}')}"
    yield "    )"
    yield "    _describe -t commands command commands"
    if command.words == ("profile",):  # a capture may follow directly
        yield "    _files"
    yield "    ;;"
    yield "  rest)"
    yield "    case $words[1] in"
    for child in command.children:
        yield f"    {child.words[-1]}) {_function(child)} ;;"
    yield "    esac ;;"
    yield "  esac"


def _arguments(head: str, specs: list[str]) -> Iterator[str]:
    yield f"{head} \\"
    for number, spec in enumerate(specs, 1):
        yield f"    {spec}" + (" \\" if number < len(specs) else "")


def _option(option: argparse.Action) -> Iterator[str]:
    """One spec per spelling; a value is `:what:how`."""
    value = f":{_plain(str(option.metavar or option.dest))}:{_how(option)}"
    for name in option.option_strings:
        equals = "=" if takes_value(option) and name.startswith("--") else ""
        text = f"{name}{equals}[{_plain(help_of(option))}]"
        repeated = "*" if isinstance(option, argparse._AppendAction) else ""
        yield _quoted(repeated + text + (value if takes_value(option) else ""))


def _argument(argument: argparse.Action) -> str:
    many = "*" if argument.nargs in ("+", "*") else ""
    optional = ":" if argument.nargs == "?" else ""
    name = _plain(str(argument.metavar or argument.dest))
    return _quoted(f"{many}:{optional}{name}:{_how(argument)}")


def _how(action: argparse.Action) -> str:
    words = words_of(action)
    return f"({' '.join(words)})" if words else "_files" if is_path(action) else " "


def _plain(text: str) -> str:
    """Without what `_arguments` reads as its own."""
    return "".join("\\" + letter if letter in "[]:\\" else letter for letter in text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
