"""Man pages: up to date, and rendered without a warning."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

import pytest

from sexton.cli.commands.completion import SCRIPTS
from sexton.cli.main import VERBS
from sexton.cli.manual import pages
from sexton.cli.tree import all_commands

MAN = Path(__file__).parents[2] / "man"


def test_the_pages_are_what_the_help_says_now() -> None:
    written = {path.name: path.read_text("ascii") for path in MAN.glob("*.1")}
    assert written == pages(), "run: make docs"


def test_there_is_a_page_for_every_command() -> None:
    assert set(pages()) == {"sexton.1", *(f"sexton-{verb}.1" for verb in VERBS)}


def test_every_option_is_on_its_page() -> None:
    made = pages()
    for command in all_commands():
        page = made["-".join(("sexton", *command.words[:1])) + ".1"]
        for option in command.options:
            assert option.option_strings[-1].replace("-", "\\-") in page


def test_an_option_that_help_hides_is_on_no_page_and_in_no_completion() -> None:
    """Such as the descriptor that a node agent hands to its own child."""
    hidden = [
        name
        for command in all_commands()
        for action in command.parser._actions
        if action.help == argparse.SUPPRESS
        for name in action.option_strings
    ]
    assert hidden
    for name in hidden:
        assert all(name not in text.replace("\\-", "-") for text in pages().values())
        assert all(name.lstrip("-") not in script() for script in SCRIPTS.values())


@pytest.mark.parametrize("name", sorted(pages()))
def test_groff_has_nothing_to_warn_of(name: str) -> None:
    if shutil.which("groff") is None:
        pytest.skip("no groff")
    ended = subprocess.run(
        ["groff", "-ww", "-man", "-Tutf8", MAN / name], capture_output=True, timeout=60, check=True
    )
    assert ended.stderr == b""


def test_man_shows_a_page_as_it_was_written() -> None:
    if shutil.which("man") is None:
        pytest.skip("no man")
    ended = subprocess.run(
        ["man", "-l", MAN / "sexton-diagnose.1"],
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "100", "MANPAGER": "cat"},
        capture_output=True,
        timeout=60,
        check=True,
    )
    text = ended.stdout.decode()
    assert ended.stderr == b""
    assert "  ssh node sh -s < collect.sh | sexton diagnose -\n" in text
    assert "sexton diagnose [options] [ARCHIVE]" in text
