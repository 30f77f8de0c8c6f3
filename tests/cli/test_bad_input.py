"""What a hurried or hostile person types: one clear line, the right exit code, no traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.cli import one_line, quiet, sexton, shell

SECONDS = (
    "0",
    "-1",
    "-0.0",
    "abc",
    "nan",
    "inf",
    "-inf",
    "1e30",
    "3601",
    "",
    " ",
    "1,5",
    "٣",
    "0x10",
)


@pytest.mark.parametrize("command", ["diagnose", "zombies"])
@pytest.mark.parametrize("value", SECONDS)
def test_seconds_that_are_none_are_refused(command: str, value: str) -> None:
    ended = sexton(command, f"--seconds={value}")
    if value == "٣":  # a digit, in Arabic: Python reads it, and so may we
        quiet(ended)
        return
    assert "--seconds" in one_line(ended.stderr)
    assert (ended.returncode, ended.stdout) == (2, b"")


@pytest.mark.parametrize(
    "arguments",
    [
        ("foo",),
        ("--foo",),
        ("diagnose", "--foo"),
        ("diagnose", "--seconds"),
        ("diagnose", "one.tar", "two.tar"),
        ("diagnose", "/no/such.tar"),
        ("diagnose", "/"),
        ("diagnose", "/etc/passwd"),
        ("diagnose", "-", "--root", "/tmp"),
        ("zombies", "--watch", "--root", "/tmp"),
        ("top", "--interval", "0"),
        ("top", "--frames", "-1"),
        ("top", "--frames", "9" * 5000),
        ("collect", "--seconds", "0"),
        ("collect", "--seconds", "00000199999"),
        ("collect", "--seconds", "9" * 5000),
        ("sources", "extra"),
        ("--", "diagnose"),
        ("diagnose\x1b[2J\nsecond line",),
        ("diagnose", "--\x1b[2J\nsecond=line"),
        ("diagnose", "a\n\x1b[2J.tar"),
        ("diagnose", "--seconds", "\n0\n"),
        ("diagnose", b"\xff\xfe"),
        ("diagnose", "x" * 5000),
    ],
    ids=lambda arguments: ascii(arguments)[:60],
)
def test_bad_usage_is_one_line(arguments: tuple[str | bytes, ...]) -> None:
    ended = sexton(*arguments)
    line = one_line(ended.stderr)
    assert line.startswith("sexton")
    assert line.isprintable()
    assert ended.stdout == b""
    assert ended.returncode == (3 if "--watch" in arguments else 2)


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("help", "sexton: no command 'help'; did you mean '--help'?"),
        ("--verson", "sexton: no option '--verson'; did you mean '--version'?"),
        ("zombies --secnods 1", "sexton zombies: no option '--secnods'; did you mean '--seconds'?"),
        (
            "profile top x --nubmer=5",
            "sexton profile top: no option '--nubmer'; did you mean '--number'?",
        ),
        ("sources --zzz", "sexton sources: no option '--zzz' (see sexton sources --help)"),
        ("fix log x", "sexton fix log: unexpected argument 'x' (see sexton fix log --help)"),
        (
            "gate --format jsn",
            "sexton gate: argument --format: 'jsn' is not one of text, json, sarif, junit;"
            " did you mean 'json'?",
        ),
        (
            "completion zhs",
            "sexton completion: argument shell: 'zhs' is not one of bash, zsh, fish;"
            " did you mean 'zsh'?",
        ),
    ],
)
def test_a_typing_error_names_the_command_and_what_was_meant(typed: str, line: str) -> None:
    ended = sexton(*typed.split())
    assert one_line(ended.stderr) == line
    assert (ended.returncode, ended.stdout) == (2, b"")


def test_no_command_at_all_is_helped() -> None:
    ended = sexton()
    assert (ended.returncode, ended.stderr) == (2, b"")
    assert b"start here" in ended.stdout


@pytest.mark.parametrize("what", ["/dev/null", "/dev/zero", "/dev/urandom"])
def test_an_archive_of_nothing_or_noise_is_one_line(what: str) -> None:
    ended = shell(f"$SEXTON diagnose - < {what}")
    assert "archive" in one_line(ended.stderr)
    assert (ended.returncode, ended.stdout) == (2, b"")


@pytest.mark.root
def test_an_archive_that_may_not_be_read_is_one_line(tmp_path: Path) -> None:
    archive = tmp_path / "node.tar"
    archive.mkdir()
    for verb in ("diagnose", "zombies"):
        said = one_line(sexton(verb, archive).stderr)
        assert "Is a directory; for a recording: sexton diagnose --from" in said


def test_a_working_directory_that_is_gone_does_not_matter(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    ended = shell(f"mkdir {gone} && cd {gone} && rmdir {gone} && $SEXTON diagnose --seconds 0.2")
    quiet(ended)
    ended = shell(f"mkdir {gone} && cd {gone} && rmdir {gone} && $SEXTON diagnose --root .")
    assert "the current directory no longer exists" in one_line(ended.stderr)
    assert ended.returncode == 2


def test_a_root_written_oddly_is_still_this_machine() -> None:
    for root in ("//", "/.", "/usr/.."):
        ended = sexton("sources", "--json", "--root", root)
        quiet(ended, allowed=[0])
        assert b"only on the node itself" not in ended.stdout


def test_a_bug_is_one_line_and_never_looks_like_a_problem_of_the_node(tmp_path: Path) -> None:
    """Python exits with 1 after a traceback, which here would mean "a problem was found"."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sexton.explain.diagnosis as it\n"
        "def broken(*_): raise KeyError('a\\nb')\n"
        "it.run_all = broken\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    ended = sexton("diagnose", "--seconds", "0.2", env={"PYTHONPATH": path})
    line = one_line(ended.stderr)
    assert "internal error: KeyError" in line
    assert (ended.returncode, ended.stdout) == (2, b"")
