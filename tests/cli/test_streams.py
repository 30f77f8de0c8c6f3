"""Standard streams that are closed, full, broken or know only ASCII."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import pytest

from sexton.cli.main import VERBS
from tests.support.cli import one_line, quiet, sexton, shell
from tests.support.fixtures import FIXTURES

QUICK = {
    "diagnose": ("diagnose", "--seconds", "0.2"),
    "why": ("why", "core", "0", "--seconds", "0.2"),
    "zombies": ("zombies", "--seconds", "0.2"),
    "fix": ("fix", "status"),
    "audit": ("audit", "--seconds", "0.2"),
    "gate": ("gate", "--print-policy"),
    "top": ("top", "--interval", "0.2"),
    "profile": ("profile", "top", str(FIXTURES / "perf" / "script" / "6.18-default.txt")),
    "record": ("record", "/nowhere/at/all", "--preflight"),
    "recording": ("recording", "info", str(FIXTURES / "recordings" / "format-1")),
    "serve": ("serve", "--openapi"),
    "demo": ("demo", "--tour"),
    "sources": ("sources",),
    "collect": ("collect",),
}
EVERY = [*QUICK.values(), ("diagnose", "--seconds", "0.2", "--json"), ("--help",), ("--version",)]
#: Of every day: one that watches, one that prints and one that needs nothing.
DAILY = (QUICK["diagnose"], QUICK["collect"], ("--version",))


def each(commands: Iterable[tuple[str, ...]]) -> pytest.MarkDecorator:
    """Every command; most of them are for the whole suite."""
    params = [
        pytest.param(one, id=" ".join(one), marks=() if one in DAILY else pytest.mark.whole)
        for one in commands
    ]
    return pytest.mark.parametrize("command", params)


def test_every_command_is_tried_here() -> None:
    assert set(QUICK) == set(VERBS)


@each(EVERY)
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_a_full_disk_is_one_line_and_a_failure(command: tuple[str, ...], unbuffered: str) -> None:
    ended = shell(
        f"$SEXTON {shlex.join(command)} > /dev/full", env={"PYTHONUNBUFFERED": unbuffered}
    )
    assert one_line(ended.stderr) == "sexton: cannot write: No space left on device"
    assert ended.returncode == 2


@each(EVERY)
def test_a_reader_that_left_ends_us_as_it_would_any_program(command: tuple[str, ...]) -> None:
    ended = shell(f"$SEXTON {shlex.join(command)} | exec true; exit ${{PIPESTATUS[0]}}")
    assert (ended.returncode, ended.stderr) == (141, b"")


@each(EVERY)
def test_closed_standard_output_is_one_line_and_a_failure(command: tuple[str, ...]) -> None:
    ended = shell(f"$SEXTON {shlex.join(command)} >&-")
    assert one_line(ended.stderr) == "sexton: standard output is closed: nowhere to write to"
    assert ended.returncode == 2


@each(QUICK.values())
@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_the_other_streams_are_not_needed(command: tuple[str, ...], closed: str) -> None:
    ended = shell(f"$SEXTON {shlex.join(command)} {closed}")
    quiet(ended)
    assert ended.stdout


def test_an_archive_from_a_closed_standard_input_is_one_line() -> None:
    ended = shell("$SEXTON diagnose - <&-")
    assert "standard input is closed" in one_line(ended.stderr)
    assert ended.returncode == 2


@each([*EVERY, ("diagnose", "--help")])
@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    ],
    ids=["ascii", "posix"],
)
def test_a_terminal_without_unicode_gets_plain_letters(
    command: tuple[str, ...], env: dict[str, str]
) -> None:
    ended = sexton(*command, env=env)
    quiet(ended)
    assert ended.stdout.isascii()
    assert b"?" not in ended.stdout.split(b"\n")[0]


def test_a_letter_that_an_encoding_has_is_kept() -> None:
    ended = sexton("sources", env={"PYTHONIOENCODING": "latin-1"})
    assert ended.stderr == b""
    assert "…" not in ended.stdout.decode("latin-1")


@each([*EVERY, ("diagnose", "--help")])
def test_an_interpreter_without_docstrings_is_enough(command: tuple[str, ...]) -> None:
    ended = sexton(*command, env={"PYTHONOPTIMIZE": "2"})
    quiet(ended)
    assert ended.stdout


@each(QUICK.values())
@pytest.mark.parametrize(
    "env",
    [
        {"COLUMNS": "20", "LINES": "5", "TERM": "dumb", "NO_COLOR": "1"},
        {"COLUMNS": "-5", "LINES": "junk", "TERM": ""},
        {"COLUMNS": "100000"},
    ],
    ids=["narrow", "junk", "wide"],
)
def test_odd_surroundings_change_nothing_that_matters(
    command: tuple[str, ...], env: dict[str, str]
) -> None:
    ended = sexton(*command, env=env)
    quiet(ended)
    assert ended.stdout
