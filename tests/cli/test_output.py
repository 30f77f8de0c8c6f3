"""Standard streams that are closed, full or ASCII only; files written whole or not at all."""

from __future__ import annotations

import os
import pty
import re
import shlex
import stat
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import sexton as sexton_package
from sexton.cli.main import VERBS, main
from sexton.cli.output import prepare, write_whole
from sexton.errors import CommandError
from tests.support.cli import ENVIRONMENT, SEXTON, one_line, quiet, sexton, shell
from tests.support.fixtures import FIXTURES

SOURCE = Path(sexton_package.__file__).parent
QUICK = {
    "diagnose": ("diagnose", "--seconds", "0.2"),
    "why": ("why", "core", "0", "--seconds", "0.2"),
    "zombies": ("zombies", "--seconds", "0.2"),
    "fix": ("fix", "status"),
    "audit": ("audit", "--seconds", "0.2"),
    "audit-log": ("audit-log", "verify"),
    "gate": ("gate", "--print-policy"),
    "top": ("top", "--interval", "0.2"),
    "profile": ("profile", "top", str(FIXTURES / "perf" / "script" / "6.18-default.txt")),
    "record": ("record", "/nowhere/at/all", "--preflight"),
    "recording": ("recording", "info", str(FIXTURES / "recordings" / "format-1")),
    # They print nothing, and a line that depends on another's file.
    "node-agent": ("node-agent", "--help"),
    "npd": ("npd", "--help"),
    "serve": ("serve", "--openapi"),
    "export": ("export", "--seconds", "1", "--once", "-"),
    "demo": ("demo", "--tour"),
    "sources": ("sources",),
    "config": ("config", "--all"),
    "collect": ("collect",),
    "completion": ("completion", "bash"),
}
FLAME = ("profile", "flame", *QUICK["profile"][2:])
EVERY = [*QUICK.values(), ("diagnose", "--seconds", "0.2", "--json"), ("--help",), ("--version",)]
#: Of every day: one that watches, one that prints and one that needs nothing.
DAILY = (QUICK["diagnose"], QUICK["collect"], ("--version",), FLAME)


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


@each([*EVERY, ("diagnose", "--help"), FLAME])
@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"LC_ALL": "C"},
        {"LC_ALL": "", "LANG": "C"},
    ],
    ids=["ascii", "posix", "c", "lang"],
)
def test_a_terminal_without_unicode_gets_plain_letters(
    command: tuple[str, ...], env: dict[str, str]
) -> None:
    ended = sexton(*command, env=env)
    quiet(ended)
    assert ended.stdout.isascii()
    assert b"?" not in ended.stdout.split(b"\n")[0]


def test_every_sign_that_reports_draw_has_a_plain_letter() -> None:
    """The reports' own signs; names from elsewhere become ``?``."""
    folders = (SOURCE / "reports" / "text", SOURCE / "cli", SOURCE / "detect", SOURCE / "explain")
    drawn = {
        sign
        for folder in folders
        for file in folder.rglob("*.py")
        for sign in file.read_text("utf-8")
        if not sign.isascii()
    }
    prepare()
    for sign in sorted(drawn):
        assert sign.encode("ascii", "sexton.plain") != b"?", sign


def test_python_may_be_told_to_write_utf_8_in_any_locale() -> None:
    ended = sexton("profile", *FLAME[1:], env={"LC_ALL": "C", "PYTHONUTF8": "1"})
    assert "→" in ended.stdout.decode("utf-8")


@pytest.mark.parametrize(
    "env",
    [{}, {"LANG": "C.UTF-8"}, {"LANG": "C", "LC_ALL": "C.UTF-8"}, {"LANG": "en_XX.UTF-8"}],
    ids=["none", "utf-8", "overruled", "missing"],
)
def test_a_locale_that_is_not_set_to_ascii_keeps_its_signs(env: dict[str, str]) -> None:
    ended = sexton("profile", *FLAME[1:], env={"LC_ALL": "", "LANG": "", **env})
    assert "→" in ended.stdout.decode("utf-8")


ON_A_TERMINAL = [("sources",), ("top", "--interval", "0.2", "--frames", "1"), QUICK["zombies"]]


@pytest.mark.parametrize("command", ON_A_TERMINAL, ids=lambda command: command[0])
def test_a_terminal_gets_colour_unless_it_or_its_user_says_no(command: tuple[str, ...]) -> None:
    coloured = on_a_terminal(command, {"TERM": "xterm-256color"})
    assert b"\x1b[" in coloured
    plain = on_a_terminal(command, {"TERM": "dumb"})
    assert plain.strip()
    assert b"\x1b" not in plain
    no_colour = on_a_terminal(command, {"TERM": "xterm-256color", "NO_COLOR": "1"})
    assert not re.search(rb"\x1b\[(?:3[0-9]|4[0-9]|9[0-7])", no_colour)
    empty = on_a_terminal(command, {"TERM": "xterm-256color", "NO_COLOR": ""})
    assert b"\x1b[" in empty  # no-color.org: set, and not empty


def test_one_place_decides_about_colour() -> None:
    """Only `output` asks the environment for it, and whether there is a terminal to colour."""
    asking = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        for line in file.read_text("utf-8").splitlines()
        if ("environ" in line and ("NO_COLOR" in line or '"TERM"' in line))
        or ("isatty" in line and ("stderr" in line or "colour" in line))
    }
    assert asking <= {"cli/output.py"}
    assert asking


def on_a_terminal(command: tuple[str, ...], env: dict[str, str]) -> bytes:
    """All that it writes to a terminal of its own."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*SEXTON, *command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**ENVIRONMENT, **env},
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:  # Linux says EIO when the last writer has gone
        pass
    finally:
        os.close(ours)
    child.wait(timeout=180)
    return seen


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
        {"COLUMNS": "9999999999", "LINES": "9999999999"},
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


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277])
def test_a_new_file_is_private_and_one_that_is_kept_in_git_keeps_its_mode(
    tmp_path: Path, mask: int
):
    path = tmp_path / "agents.toml"
    before = os.umask(mask)
    try:
        write_whole(str(path), (b"new",))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.chmod(0o640)
        write_whole(str(path), (b"newer",))
    finally:
        os.umask(before)
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"newer", 0o640)


@pytest.mark.root
def test_the_mode_of_a_file_that_another_user_put_there_is_not_kept(tmp_path: Path):
    path = tmp_path / "plan.json"
    path.write_bytes(b"")
    path.chmod(0o666)
    os.chown(path, 65534, 65534)
    write_whole(str(path), (b"new",))
    assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (0, 0o600)


@pytest.mark.root
@pytest.mark.parametrize("link", [False, True], ids=["pipe", "link"])
def test_a_pipe_that_another_user_put_there_gets_nothing(tmp_path: Path, link: bool):
    """They would read what only we may read: writing does not create it, so no sysctl helps."""
    pipe, out = tmp_path / "pipe", tmp_path / "out"
    os.mkfifo(pipe)
    if link:
        out.symlink_to("/dev/null")
    else:
        os.rename(pipe, out)
    os.chown(out, 65534, 65534, follow_symlinks=False)
    with pytest.raises(CommandError, match="of user 65534; not written to"):
        write_whole(str(out), (b"new",))


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
    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o600, "not the link's 0777"


@pytest.mark.parametrize("option", ["--save", "--write-policy"])
def test_an_audit_that_is_saved_on_a_link_is_private(tmp_path: Path, option: str):
    (tmp_path / "usr/lib/systemd/system").mkdir(parents=True)
    (tmp_path / "usr/lib/systemd/system/a.service").write_text("[Service]\nExecStart=/bin/true\n")
    out = tmp_path / "out"
    out.symlink_to("elsewhere")
    assert main(["audit", "--root", str(tmp_path), option, str(out)]) in (0, 1)
    assert (out.is_symlink(), stat.S_IMODE(out.stat().st_mode)) == (False, 0o600)


def test_the_links_of_the_system_to_its_streams_stay_links(tmp_path: Path):
    with (tmp_path / "out").open("wb") as stream:
        write_whole(f"/proc/self/fd/{stream.fileno()}", (b"written",))
    assert (tmp_path / "out").read_bytes() == b"written"
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.root
def test_a_device_is_written_to_and_stays_one(tmp_path: Path):
    """As root, a rename would have made a file of /dev/null."""
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no devices may be made here")
    write_whole(str(device), (b"x",))
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
