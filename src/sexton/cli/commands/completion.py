"""Print a completion script for bash, zsh or fish.

Completes commands, options, their values, detectors and files. To load it in every new shell:

  sexton completion bash > /usr/share/bash-completion/completions/sexton
  sexton completion zsh > /usr/share/zsh/vendor-completions/_sexton
  sexton completion fish > /usr/share/fish/vendor_completions.d/sexton.fish

In this bash only: source <(sexton completion bash)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from sexton.cli.tree import Command, all_commands, completions_of, help_of, is_path, takes_value

_BASH_HEAD = """\
# bash completion for sexton. Written by: sexton completion bash
_sexton() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} at= words= files= i
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$at ${COMP_WORDS[i]}" in
"""
_BASH_TAIL = """\
  if [[ -n $words ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  fi
  if [[ -n $files && $cur != -* ]]; then
    local found
    mapfile -t found < <(compgen -f -- "$cur")
    COMPREPLY+=("${found[@]}")
    compopt -o filenames 2>/dev/null
  fi
}
complete -F _sexton sexton
"""
_FISH_HEAD = """\
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")


def run(args: argparse.Namespace) -> int:
    import sys

    sys.stdout.write(SCRIPTS[args.shell]())
    return 0


def _at(command: Command) -> str:
    """The command as the scripts track it: its words, each after a space."""
    return "".join(f" {word}" for word in command.words)


def _takes_files(command: Command) -> bool:
    """Whether a file may follow; after `profile` a capture may."""
    return command.words == ("profile",) or any(map(is_path, command.positionals))


def bash() -> str:
    """One function that finds the command in the line, then its words.

    ``command:option`` chooses what a value may be, the command alone what else may follow.
    """
    commands = list(all_commands())
    lines = [_BASH_HEAD.rstrip("\n")]
    paths = [f'"{_at(command)}"' for command in commands if command.words]
    # The pattern is the path so far and the word, both without options in between.
    lines += [f'      {" | ".join(paths)}) at="$at ${{COMP_WORDS[i]}}" ;;', "    esac", "  done"]
    lines += ['  case "$at:$prev" in', *_bash_values(commands), "  *)", '    case "$at" in']
    for command in commands:
        options = (name for option in command.options for name in option.option_strings)
        names = [child.words[-1] for child in command.children]
        names += [word for argument in command.positionals for word in completions_of(argument)]
        files = " files=1" if _takes_files(command) else ""
        lines.append(f'    "{_at(command)}")')
        lines.append(f"      if [[ $cur == -* ]]; then words='{_bash_words(options)}'")
        lines.append(f"      else words='{_bash_words(names)}'{files}; fi ;;")
    lines += ["    esac ;;", "  esac"]
    return "\n".join(lines) + "\n" + _BASH_TAIL


def _bash_values(commands: Iterable[Command]) -> Iterator[str]:
    """What may follow an option that takes a value."""
    for command in commands:
        for option in filter(takes_value, command.options):
            patterns = " | ".join(f'"{_at(command)}:{name}"' for name in option.option_strings)
            words = _bash_words(completions_of(option))
            does = f"words='{words}'" if words else "files=1" if is_path(option) else "return"
            yield f"  {patterns}) {does} ;;"


def _bash_words(words: Iterable[str]) -> str:
    return " ".join(words).replace("'", "")


def zsh() -> str:
    """One function per command, with its options for `_arguments`."""
    lines = ["#compdef sexton", "# zsh completion for sexton. Written by: sexton completion zsh"]
    for command in all_commands():
        lines += ["", f"{_zsh_function(command)}() {{", *_zsh_body(command), "}"]
    lines += ["", 'if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _sexton "$@"']
    lines += ["else compdef _sexton sexton; fi"]
    return "\n".join(lines) + "\n"


def _zsh_function(command: Command) -> str:
    return "_".join(("_sexton", *command.words))


def _zsh_body(command: Command) -> Iterator[str]:
    specs = [spec for option in command.options for spec in _zsh_option(option)]
    if not command.children:
        specs += map(_zsh_argument, command.positionals)
        yield from _zsh_arguments("  _arguments -s", specs)
        return
    yield "  local curcontext=$curcontext state line"
    yield "  typeset -A opt_args"
    yield from _zsh_arguments("  _arguments -C", [*specs, "'1: :->command'", "'*:: :->rest'"])
    yield "  case $state in"
    yield "  command)"
    yield "    local -a commands=("
    for child in command.children:
        yield f"      {_zsh_quoted(f'{child.words[-1]}:{_zsh_plain(child.summary)}')}"
    yield "    )"
    yield "    _describe -t commands command commands"
    if _takes_files(command):
        yield "    _files"
    yield "    ;;"
    yield "  rest)"
    yield "    case $words[1] in"
    for child in command.children:
        yield f"    {child.words[-1]}) {_zsh_function(child)} ;;"
    yield "    esac ;;"
    yield "  esac"


def _zsh_arguments(head: str, specs: list[str]) -> Iterator[str]:
    yield f"{head} \\"
    for number, spec in enumerate(specs, 1):
        yield f"    {spec}" + (" \\" if number < len(specs) else "")


def _zsh_option(option: argparse.Action) -> Iterator[str]:
    """One spec per spelling; a value is `:what:how`."""
    value = f":{_zsh_value(option)}" if takes_value(option) else ""
    for name in option.option_strings:
        equals = "=" if value and name.startswith("--") else ""
        repeated = "*" if isinstance(option, argparse._AppendAction) else ""
        text = f"{repeated}{name}{equals}[{_zsh_plain(help_of(option))}]"
        yield _zsh_quoted(text + value)


def _zsh_argument(argument: argparse.Action) -> str:
    many = "*" if argument.nargs in ("+", "*") else ""
    optional = ":" if argument.nargs == "?" else ""
    return _zsh_quoted(f"{many}:{optional}{_zsh_value(argument)}")


def _zsh_value(action: argparse.Action) -> str:
    words = completions_of(action)
    how = f"({' '.join(words)})" if words else "_files" if is_path(action) else " "
    return f"{_zsh_plain(str(action.metavar or action.dest))}:{how}"


def _zsh_plain(text: str) -> str:
    """Escape what `_arguments` would interpret."""
    return "".join("\\" + letter if letter in "[]:\\" else letter for letter in text)


def _zsh_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def fish() -> str:
    """A function that finds the command in the line, and a line per word."""
    commands = list(all_commands())
    paths = " ".join(_fish_quoted(_at(command)) for command in commands if command.words)
    lines = [_FISH_HEAD.format(paths=paths).rstrip("\n")]
    for command in commands:
        at = _fish_quoted(f"__sexton_at {_fish_quoted(_at(command))}")
        lines += [f"complete -c sexton -n {at} {words}" for words in _fish_words(command)]
    return "\n".join(lines) + "\n"


def _fish_words(command: Command) -> Iterator[str]:
    for child in command.children:
        yield f"-a {child.words[-1]} -d {_fish_quoted(child.summary)}"
    for argument in command.positionals:
        if words := completions_of(argument):
            yield f"-a {_fish_quoted(' '.join(words))}"
    if _takes_files(command):
        yield "-F"
    for option in command.options:
        spellings = " ".join(
            f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
            for name in option.option_strings
        )
        yield f"{spellings}{_fish_value(option)} -d {_fish_quoted(help_of(option))}"


def _fish_value(option: argparse.Action) -> str:
    if not takes_value(option):
        return ""
    if words := completions_of(option):
        return f" -x -a {_fish_quoted(' '.join(words))}"
    return " -r -F" if is_path(option) else " -x"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
