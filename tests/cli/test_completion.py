"""Completion, in the shells themselves."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from sexton.cli.commands.completion import SCRIPTS
from sexton.cli.main import VERBS
from sexton.cli.tree import all_commands
from tests.support.cli import ENVIRONMENT, sexton

#: A line as it is typed, the last word of it unfinished; and all that may be meant.
TYPED = [
    (["sexton", "diagn"], {"diagnose"}),
    (["sexton", "fix", "ro"], {"rollback"}),
    (["sexton", "fix", "apply", "--con"], {"--confirm"}),
    (["sexton", "gate", "--format", "j"], {"json", "junit"}),
    (["sexton", "completion", "z"], {"zsh"}),
    (["sexton", "recording", "info", "fil"], {"file with blank.txt"}),
    (["sexton", "profile", "top", "--number", "fi"], set()),
    (["sexton", "why", "satur"], {"saturated_core"}),
    (["sexton", "why", "--from", "x", "uni"], {"unit"}),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "file with blank.txt").touch()
    for shell, script in SCRIPTS.items():
        (tmp_path / shell).write_text(script())
    return tmp_path


def ran(shell: str, line: str, place: Path) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    ended = subprocess.run(
        [shell, *(["--no-config"] if shell == "fish" else []), "-c", line],
        env={**ENVIRONMENT, "HOME": str(place)},
        cwd=place,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert ended.stderr == b""
    return ended.stdout.decode()


def _words(value: list[str] | set[str]) -> str:
    """A set has another order in every process, and parallel runs compare names."""
    return " ".join(value if isinstance(value, list) else sorted(value))


@pytest.mark.parametrize(("words", "meant"), TYPED, ids=_words)
def test_bash_completes(words: list[str], meant: set[str], place: Path) -> None:
    line = f"source ./bash; COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _sexton;"
    said = ran("bash", line + ' printf "%s\\n" "${COMPREPLY[@]}"; complete -p sexton', place)
    *found, registered = said.splitlines()
    assert set(filter(None, found)) == meant
    assert registered == "complete -F _sexton sexton"


def test_bash_offers_every_command(place: Path) -> None:
    line = 'source ./bash; COMP_WORDS=(sexton ""); COMP_CWORD=1; _sexton; echo "${COMPREPLY[@]}"'
    assert ran("bash", line, place).split() == list(VERBS)


@pytest.mark.parametrize(("words", "meant"), TYPED, ids=_words)
def test_fish_completes(words: list[str], meant: set[str], place: Path) -> None:
    said = ran("fish", f"source ./fish; complete -C '{' '.join(words)}'", place)
    found = {line.partition("\t")[0].replace("\\ ", " ") for line in said.splitlines()}
    assert found == meant


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("sexton diagn", "sexton diagnose"),
        ("sexton fix roll", "sexton fix rollback"),
        ("sexton fix apply --conf", "sexton fix apply --confirm"),
        ("sexton why satur", "sexton why saturated_core"),
        ("sexton gate --format sa", "sexton gate --format sarif"),
        ("sexton recording info fil", "sexton recording info file\\ with\\ blank.txt"),
    ],
)
def test_zsh_completes_what_is_typed(typed: str, completed: str, place: Path) -> None:
    """In an interactive zsh: Tab, then the line itself is printed instead of run."""
    if shutil.which("zsh") is None:
        pytest.skip("no zsh")
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        ["zsh", "-f", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=place,
        env={**ENVIRONMENT, "HOME": str(place), "TERM": "dumb", "PS1": ""},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        start = "bindkey -e; autoload -U compinit; compinit -u -D; source ./zsh; print re''ady\n"
        os.write(ours, start.encode())
        assert b"ready" in _until(ours, b"ready")
        os.write(ours, typed.encode() + b"\t\x05' end\x01print -r -- 'got \n")
        assert f"got {completed}" in _until(ours, b" end\r\n").decode()
    finally:
        child.kill()
        child.wait()
        os.close(ours)


def _until(descriptor: int, mark: bytes) -> bytes:
    seen = b""
    deadline = time.monotonic() + 60
    while mark not in seen and time.monotonic() < deadline:
        ready, _, _ = select.select([descriptor], [], [], 0.2)
        if ready:
            seen += os.read(descriptor, 65536)
    return seen


def test_every_command_and_every_option_is_in_each_script() -> None:
    for name, make in SCRIPTS.items():
        script = make()
        for command in all_commands():
            for option in command.options:
                long = option.option_strings[-1]
                assert (f"-l {long[2:]}" if name.endswith("fish") else long) in script


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_shell_reads_its_script_without_complaint(shell: str, place: Path) -> None:
    assert ran(shell, f"{shell} -n ./{shell}", place) == ""
    assert sexton("completion", shell).stdout.decode() == SCRIPTS[shell]()
