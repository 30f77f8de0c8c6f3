"""Standard streams that are closed, full or ASCII only; files written whole or not at all."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sexton.cli.main import VERBS
from sexton.cli.output import write_whole
from sexton.errors import CommandError
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
    assert one_line(ended.stderr) == "sexton: standard output is closed"
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


def test_it_is_there_for_its_owner_alone_and_nothing_lies_beside_it(tmp_path: Path):
    write_whole(str(tmp_path / "plan.json"), (b"one ", b"two"))
    assert (tmp_path / "plan.json").read_bytes() == b"one two"
    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["plan.json"]


def test_one_that_is_kept_in_git_keeps_its_mode(tmp_path: Path):
    path = tmp_path / "agents.toml"
    write_whole(str(path), (b"new",), mode=None)
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o640)
    write_whole(str(path), (b"newer",), mode=None)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"newer", 0o640)


def test_what_fails_half_way_leaves_the_old_one_and_no_rest(tmp_path: Path):
    path = tmp_path / "plan.json"
    path.write_bytes(b"old")

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_whole(str(path), parts())
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["plan.json"])


def test_a_link_is_replaced_and_not_followed(tmp_path: Path):
    (tmp_path / "precious").write_bytes(b"precious")
    (tmp_path / "plan.json").symlink_to(tmp_path / "precious")
    write_whole(str(tmp_path / "plan.json"), (b"new",))
    assert (tmp_path / "precious").read_bytes() == b"precious"
    assert not (tmp_path / "plan.json").is_symlink()


@pytest.mark.root
def test_a_device_is_written_to_and_stays_one(tmp_path: Path):
    """As root, a rename would have made a file of /dev/null."""
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no devices may be made here")
    for mode in (0o600, None):
        write_whole(str(device), (b"x",), mode)
        assert stat.S_ISCHR(device.stat().st_mode)
    assert os.listdir(tmp_path) == ["null"]
    disk = tmp_path / "disk"
    os.mknod(disk, stat.S_IFBLK | 0o600, os.makedev(7, 250))
    with pytest.raises(CommandError, match="is a disk, not a file"):
        write_whole(str(disk), (b"x",))


@pytest.mark.parametrize(
    ("name", "why"),
    [(".", "Is a directory"), ("no/such", "No such file"), ("x\0y", "NUL byte"), ("", "No such")],
)
def test_what_cannot_be_written_is_one_line(tmp_path: Path, name: str, why: str):
    with pytest.raises(CommandError, match=why) as error:
        write_whole(str(tmp_path / name) if name else "", (b"x",))
    assert "\n" not in str(error.value)
    assert os.listdir(tmp_path) == []
