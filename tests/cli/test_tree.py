"""What holds for every command there is: found by walking the parsers."""

from __future__ import annotations

import json

import pytest

from sexton.cli.main import main
from sexton.cli.tree import Command, all_commands
from tests.support.cli import one_line, sexton
from tests.support.fixtures import FIXTURES

#: Commands that print no facts, and why; docs/json.md lists them, too.
NO_JSON = {
    "serve": "runs until Ctrl-C; --openapi prints JSON",
    "export": "runs until Ctrl-C; --once writes Prometheus' text format",
    "node-agent": "runs until Ctrl-C",
    "npd": "prints the line that node-problem-detector reads",
    "collect": "prints a shell script",
    "completion": "prints a shell script",
    "profile export": "writes another program's format",
    "profile report": "writes an HTML page; profile spikes --json has its facts",
}
SCRIPT = FIXTURES / "perf" / "script" / "6.18-default.txt"
LEAVES = [command for command in all_commands() if command.words and not command.children]


def name(command: Command) -> str:
    return " ".join(command.words)


@pytest.mark.parametrize("command", LEAVES, ids=name)
def test_every_command_that_prints_facts_has_json(command: Command) -> None:
    options = {option for action in command.options for option in action.option_strings}
    assert ("--json" in options) != (name(command) in NO_JSON)


def test_the_exceptions_are_documented() -> None:
    page = (FIXTURES.parents[1] / "docs" / "json.md").read_text("utf-8")
    for exception in NO_JSON:
        assert f"`sexton {exception}`" in page


@pytest.mark.parametrize("command", LEAVES, ids=name)
def test_every_command_has_a_summary_and_every_option_a_help(command: Command) -> None:
    assert command.summary
    for action in (*command.options, *command.positionals):
        assert action.help, action


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        (["diagnos"], "sexton: no command 'diagnos'; did you mean 'diagnose'?"),
        (["fix", "aply"], "sexton fix: no command 'aply'; did you mean 'apply'?"),
        (["recording", "infos"], "sexton recording: no command 'infos'; did you mean 'info'?"),
        (["xyzzy"], "sexton: no command 'xyzzy' (see sexton --help)"),
        (["\x1b[2J"], "sexton: no command '\\x1b[2J' (see sexton --help)"),
    ],
)
def test_a_mistyped_command_gets_the_one_that_was_meant(
    typed: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed) == 2
    assert one_line(capsys.readouterr().err.encode()) == line


@pytest.mark.parametrize(
    ("command", "schema"),
    [
        (("top", "--interval", "0.2", "--json"), "sexton.top/1"),
        (("profile", "flame", str(SCRIPT), "--json"), "sexton.flame/1"),
        (("profile", "diff", str(SCRIPT), str(SCRIPT), "--json"), "sexton.flame.difference/1"),
        (("demo", "--json"), "sexton.tour/1"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_json_is_one_versioned_object(command: tuple[str, ...], schema: str) -> None:
    ended = sexton(*command)
    assert ended.stderr == b""
    assert json.loads(ended.stdout)["schema"] == schema


def test_a_stream_of_screens_is_a_line_each() -> None:
    # In a tenth of a second a busy machine may account for too little of a core's time to tell.
    ended = sexton("top", "--interval", "1", "--frames", "2", "--json")
    screens = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [len(screen["cores"]) > 0 for screen in screens] == [True, True]
    assert screens[0]["time"] < screens[1]["time"]
