"""`sexton completion bash`: one function that finds the command in the line, then its words.

``command:option`` chooses what a value may be, the command alone what else may follow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sexton.cli.tree import Command, all_commands, is_path, takes_value, words_of

_HEAD = """\
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
_TAIL = """\
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


def script() -> str:
    commands = list(all_commands())
    lines = [_HEAD.rstrip("\n")]
    paths = [f'"{" ".join(("", *command.words))}"' for command in commands if command.words]
    # The pattern is the path so far and the word, both without options in between.
    lines += [f'      {" | ".join(paths)}) at="$at ${{COMP_WORDS[i]}}" ;;', "    esac", "  done"]
    lines += ['  case "$at:$prev" in', *_values(commands), "  *)", '    case "$at" in']
    for command in commands:
        at = " ".join(("", *command.words))
        lines.append(f'    "{at}")')
        lines.append(f"      if [[ $cur == -* ]]; then words='{_joined(_options(command))}'")
        lines.append(f"      else words='{_joined(_names(command))}'{_files(command)}; fi ;;")
    lines += ["    esac ;;", "  esac"]
    return "\n".join(lines) + "\n" + _TAIL


def _values(commands: Iterable[Command]) -> Iterator[str]:
    """What may follow an option that takes a value."""
    for command in commands:
        at = " ".join(("", *command.words))
        for option in command.options:
            if not takes_value(option):
                continue
            patterns = " | ".join(f'"{at}:{name}"' for name in option.option_strings)
            words = _joined(words_of(option))
            does = f"words='{words}'" if words else "files=1" if is_path(option) else "return"
            yield f"  {patterns}) {does} ;;"


def _options(command: Command) -> Iterator[str]:
    for option in command.options:
        yield from option.option_strings


def _names(command: Command) -> Iterator[str]:
    """Words that may stand there without a dash."""
    for child in command.children:
        yield child.words[-1]
    for argument in command.positionals:
        yield from words_of(argument)


def _files(command: Command) -> str:
    takes = any(is_path(argument) for argument in command.positionals)
    # A capture may follow `profile` directly.
    return " files=1" if takes or command.words == ("profile",) else ""


def _joined(words: Iterable[str]) -> str:
    return " ".join(words).replace("'", "")
