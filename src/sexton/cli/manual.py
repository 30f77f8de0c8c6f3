"""Man pages, made from the help: ``sexton(1)`` and one page per command, in roff.

``python -m sexton.cli.manual`` (part of ``make docs``) writes them to ``man/``; the wheel installs
them under ``share/man/man1``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from sexton import __version__
from sexton.cli.tree import Command, all_commands, help_of, takes_value, words_of

_FILES = (
    ("/etc/sexton/config.toml", "thresholds, detectors that are off, and silences"),
    ("/etc/sexton/protected.toml", "units that sexton fix must not touch"),
    ("/var/lib/sexton", "the recording that sexton serve opens by default"),
    ("/var/lib/sexton-fix", "journal and audit log of sexton fix"),
)
_ENVIRONMENT = (
    ("SEXTON_CONFIG", "the configuration file; empty for none"),
    ("NO_COLOR", "if it is not empty, no colours"),
    ("TERM", "dumb: no colours, and no line is overwritten"),
    ("LC_ALL, LANG", "C or POSIX: ASCII only; LANG counts without LC_ALL"),
)
_EXIT = (
    ("0", "healthy, or done"),
    ("1", "a problem was found"),
    ("2", "failed, with one line on standard error; also bad usage"),
    ("3", "could not tell"),
)


def pages() -> dict[str, str]:
    """Every page by its file name."""
    root, *others = all_commands()
    made = {"sexton.1": _root_page(root)}
    for command in others:
        if len(command.words) == 1:
            made[f"sexton-{command.words[0]}.1"] = _page(command)
    return made


def _root_page(root: Command) -> str:
    lines = [*_head(root), *_described(root.parser.description or "")]
    lines.append(".SH COMMANDS")
    for child in root.children:
        lines += [".TP", f".BR {_text(f'sexton-{child.words[0]}')} (1)", _line(child.summary)]
    lines += [".SH OPTIONS", *_options(root)]
    lines += [".SH EXAMPLES", *_verbatim((root.parser.epilog or "").splitlines())]
    for title, entries in (
        ("EXIT STATUS", _EXIT),
        ("FILES", _FILES),
        ("ENVIRONMENT", _ENVIRONMENT),
    ):
        lines.append(f".SH {title}")
        for name, meaning in entries:
            lines += [".TP", f".B {_text(name)}", _line(meaning)]
    return "\n".join(lines) + "\n"


def _page(command: Command) -> str:
    lines = [*_head(command), *_described(command.parser.description or "")]
    if command.children:
        lines.append(".SH COMMANDS")
        for child in command.children:
            lines += [f'.SS "{_text(" ".join(("sexton", *child.words)))}"', *_synopsis(child)]
            lines += [".PP", *_described(child.parser.description or ""), *_options(child)]
    else:
        lines += [".SH OPTIONS", *_options(command)]
    lines += [".SH SEE ALSO", ".BR sexton (1)"]
    return "\n".join(lines) + "\n"


def _head(command: Command) -> Iterator[str]:
    name = "-".join(("sexton", *command.words))
    yield '.\\" Made by `make docs` from the help; do not edit.'
    yield f'.TH {_text(name.upper())} 1 "" "sexton {__version__}" "User Commands"'
    yield ".SH NAME"
    yield f"{_text(name)} \\- {_text(command.summary)}"
    yield ".SH SYNOPSIS"
    yield from _synopsis(command)
    yield ".SH DESCRIPTION"


def _synopsis(command: Command) -> Iterator[str]:
    words = ["[options]"] if command.options else []
    words += ["COMMAND ..."] if command.children else []
    for argument in command.positionals:
        name = _value(argument)
        many = f"{name} ..." if argument.nargs in ("+", "*") else name
        words.append(f"[{many}]" if argument.nargs in ("?", "*") else many)
    yield f".B {_text(' '.join(('sexton', *command.words)))}"
    yield _line(" ".join(words))


def _described(text: str) -> Iterator[str]:
    """Paragraphs are filled; indented lines are kept."""
    started = False
    for indented, lines in _runs(text.strip().splitlines()):
        if indented:
            yield from _verbatim(lines)
        else:
            for number, paragraph in enumerate(_paragraphs(lines)):
                if started or number:
                    yield ".PP"
                yield from map(_line, paragraph)
        started = True


def _runs(lines: Iterable[str]) -> Iterator[tuple[bool, list[str]]]:
    """Runs of indented or other lines; a blank line belongs to the run before it."""
    kind, held = False, list[str]()
    for line in lines:
        indented = line.startswith("  ") if line.strip() else kind
        if indented != kind and held:
            yield kind, held
            held = []
        kind = indented
        held.append(line)
    if held:
        yield kind, held


def _paragraphs(lines: Iterable[str]) -> Iterator[list[str]]:
    held: list[str] = []
    for line in (*lines, ""):
        # The exit status is a separate paragraph.
        if (not line.strip() or line.startswith("Exit:")) and held:
            yield held
            held = []
        if line.strip():
            held.append(line)


def _verbatim(lines: Iterable[str]) -> Iterator[str]:
    yield ".PP"
    yield ".nf"
    for line in "\n".join(lines).rstrip().splitlines():
        yield _line(line) if line.strip() else ""
    yield ".fi"


def _options(command: Command) -> Iterator[str]:
    for argument in command.positionals:
        yield from (".TP", f".I {_text(_value(argument))}", _line(help_of(argument)))
    for option in command.options:
        value = f" {_value(option)}" if takes_value(option) else ""
        names = ", ".join(name + value for name in option.option_strings)
        yield from (".TP", f".B {_text(names)}", _line(help_of(option)))


def _value(action: argparse.Action) -> str:
    words = words_of(action)
    if action.metavar is None and words:
        return "{" + ",".join(words) + "}"
    return str(action.metavar or action.dest.upper())


def _line(text: str) -> str:
    """A line of text; one that looks like a roff request is escaped."""
    return ("\\&" if text.lstrip().startswith((".", "'")) else "") + _text(text)


def _text(text: str) -> str:
    """Escaped for roff.

    >>> _text("--json: a\\\\b …")
    '\\\\-\\\\-json: a\\\\eb \\\\[u2026]'
    """
    return "".join(
        _LETTERS.get(letter, letter if letter.isascii() else f"\\[u{ord(letter):04X}]")
        for letter in text
    )


_LETTERS = {
    "\\": "\\e",
    "-": "\\-",
    "'": "\\(aq",
    "`": "\\(ga",
    "^": "\\(ha",
    "~": "\\(ti",
    '"': "\\(dq",
}


def write(folder: Path) -> None:
    """Write every page, and remove pages of commands that no longer exist."""
    made = pages()
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.1"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (folder / name).write_text(text, "ascii")


if __name__ == "__main__":
    write(Path(__file__).parents[3] / "man")
