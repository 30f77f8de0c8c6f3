"""Whatever is done to the log is found, and what a crash cuts off is no damage."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sexton.cure import chained_log
from sexton.cure.journal import State, audit_log, check_log, log_event
from tests.support.cli import sexton

NAME = "log"
FIVE = 5


def append(folder: Path, **content: object) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        chained_log.append(descriptor, NAME, content)
    finally:
        os.close(descriptor)


def check(folder: Path, known: str = "", head: bool = True) -> chained_log.Checked:
    place = folder / f"{NAME}.head"
    anchor = place.read_text() if head and place.exists() else None
    with (folder / NAME).open("rb") as stream:
        return chained_log.verify(stream, anchor, known)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    for number in range(FIVE):
        append(tmp_path, event=f"e{number}", why="ü\n")
    return tmp_path


def lines(folder: Path) -> list[bytes]:
    return (folder / NAME).read_bytes().splitlines(keepends=True)


def test_what_was_written_is_intact(log: Path):
    found = check(log)
    assert (found.entries, found.torn, found.damage) == (FIVE, 0, [])
    entries = [json.loads(line) for line in lines(log)]
    assert [entry["seq"] for entry in entries] == [1, 2, 3, 4, 5]
    assert entries[0]["prev"] == chained_log.NOTHING
    assert found.head == entries[-1]["hash"]
    assert check(log, entries[2]["hash"]).damage == []
    assert check(log, entries[2]["hash"][:16]).damage == []
    assert "no entry has the hash" in check(log, "0" * 16).damage[0].what


def changed(content: list[bytes]) -> list[bytes]:
    return [*content[:2], content[2].replace(b'"e2"', b'"e7"'), *content[3:]]


def changed_with_its_hash(content: list[bytes]) -> list[bytes]:
    """As somebody would who knows how it is made, but changes no later entry."""
    import hashlib

    start = content[2].index(b',"hash"')
    body = content[2][:start].replace(b'"e2"', b'"e7"')
    digest = hashlib.sha256(body + b"}").hexdigest().encode()
    return [*content[:2], body + b',"hash":"' + digest + b'"}\n', *content[3:]]


TAMPERED = {
    "changed": changed,
    "changed, with its hash": changed_with_its_hash,
    "removed": lambda content: content[:2] + content[3:],
    "the first removed": lambda content: content[1:],
    "the last removed": lambda content: content[:-1],
    "all but the first removed": lambda content: content[:1],
    "reordered": lambda content: [content[0], content[2], content[1], *content[3:]],
    "repeated": lambda content: [*content[:3], *content[2:]],
    "cut off in the middle": lambda content: [*content[:2], content[2][:20] + b"\n", *content[3:]],
    "a line break removed": lambda content: [*content[:2], content[2].rstrip(), *content[3:]],
    "a line added": lambda content: [*content[:2], b"{}\n", *content[2:]],
    "an empty line added": lambda content: [*content[:2], b"\n", *content[2:]],
    "emptied": lambda content: [],
    "zeroes": lambda content: [*content[:2], bytes(len(content[2])), *content[3:]],
}


@pytest.mark.parametrize("how", TAMPERED)
def test_tampering_is_found(log: Path, how: str):
    (log / NAME).write_bytes(b"".join(TAMPERED[how](lines(log))))
    assert check(log).damage
    append(log, event="later")
    assert check(log).damage, "and a later entry does not hide it"


@pytest.mark.parametrize("how", [how for how in TAMPERED if "last" not in how and "all" not in how])
def test_tampering_is_found_without_the_head_file(log: Path, how: str):
    content = TAMPERED[how](lines(log))
    (log / NAME).write_bytes(b"".join(content))
    assert bool(check(log, head=False).damage) == bool(content)


def test_a_changed_last_entry_does_not_pass_for_one_that_a_crash_cut_off(log: Path):
    content = lines(log)
    (log / NAME).write_bytes(b"".join([*content[:-1], content[-1].replace(b"e4", b"e7")]))
    assert check(log).damage
    assert check(log, head=False).damage
    append(log, event="later")
    assert check(log).damage


@pytest.mark.parametrize("cut", [1, 10, 30])
@pytest.mark.parametrize("again", [None, b"\n", b'\n{"seq":', b"\0\0\0"])
def test_what_a_crash_cut_off_is_no_damage(log: Path, cut: int, again: bytes | None):
    """Also where the next entry was cut off in turn."""
    head = (log / f"{NAME}.head").read_text()
    append(log, event="never returned from")
    (log / f"{NAME}.head").write_text(head)
    *before, whole = lines(log)
    (log / NAME).write_bytes(b"".join(before))
    for part in (whole[:cut], again):
        if part is not None:
            with (log / NAME).open("ab") as stream:
                stream.write(part)
    found = check(log)
    assert (found.entries, found.torn, found.damage) == (FIVE, 1, [])
    append(log, event="later")
    found = check(log)
    assert (found.entries, found.torn, found.damage) == (FIVE + 1, 1, [])
    content = lines(log)
    kept = [line for line in content if chained_log.entry_of(line[:-1])]
    (log / NAME).write_bytes(b"".join(kept))
    assert "a crash cut off" in check(log).damage[0].what, "nor can it be removed"


@pytest.mark.parametrize("ends", [b"", b"\n", b'\n{"seq'])
def test_an_entry_of_which_only_the_newline_is_missing_counts(log: Path, ends: bytes):
    with (log / NAME).open("rb+") as stream:
        stream.truncate((log / NAME).stat().st_size - 1)
        stream.seek(0, 2)
        stream.write(ends)
    assert (check(log).entries, check(log).damage) == (FIVE, [])
    append(log, event="later")
    assert (check(log).entries, check(log).damage) == (FIVE + 1, [])


def test_a_crash_before_the_head_file_was_written(log: Path):
    head = (log / f"{NAME}.head").read_text()
    append(log, event="later")
    (log / f"{NAME}.head").write_text(head)
    assert check(log).damage == []
    append(log, event="later still")
    assert (check(log).entries, check(log).damage) == (FIVE + 2, [])


@pytest.mark.parametrize("head", ["", "7", "5 abc\n", "5 " + "0" * 64 + "\n", "9" * 30])
def test_a_changed_head_file_is_found(log: Path, head: str):
    (log / f"{NAME}.head").write_text(head)
    assert check(log).damage


@pytest.mark.parametrize("content", [b"", b"\n" * 5, b"{" * 3_000_000, b"\xff\xfe", b"[" * 70_000])
def test_any_content_is_judged(content: bytes):
    found = chained_log.verify(io.BytesIO(content), None)
    assert found.entries == 0
    assert len(found.damage) <= 101


def test_two_that_append_at_once_make_one_chain(tmp_path: Path):
    def many(word: str) -> None:
        for number in range(20):
            append(tmp_path, event=f"{word}{number}")

    threads = [threading.Thread(target=many, args=(word,)) for word in "ab"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (check(tmp_path).entries, check(tmp_path).damage) == (40, [])


_KILLED = """
import itertools, os, sys
from sexton.cure.journal import State, log_event
state = State(sys.argv[1])
state.make()
for number in itertools.count():
    log_event(state, "e", number=number)
    os.write(1, b"%d\\n" % number)
"""


@pytest.mark.parametrize("after", [1, 7, 23])
def test_killed_at_any_moment_every_entry_that_was_returned_from_is_there(tmp_path, after: int):
    state = State(str(tmp_path / "state"))
    argv = [sys.executable, "-c", _KILLED, state.directory]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(after):
            last = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        last = max([last, *map(int, child.stdout.read().split())])
    found = check_log(state)
    assert found.damage == []
    assert [line["number"] for line in audit_log(state)][: last + 1] == list(range(last + 1))
    log_event(state, "later")
    assert check_log(state).damage == []


def test_the_command_verifies_and_shows(tmp_path):
    folder = str(tmp_path / "state")
    state = State(folder)
    assert (
        "nothing has been logged"
        in sexton("audit-log", "verify", "--state", folder).stdout.decode()
    )
    state.make()
    for event in ("one", "two"):
        log_event(state, event, why="because\x1b[2J")
    shown = sexton("audit-log", "verify", "--state", folder)
    assert (shown.returncode, shown.stdout.decode().split()[0]) == (0, "INTACT")
    last = shown.stdout.decode().split()[-1]
    assert sexton("audit-log", "verify", "--state", folder, "--known", last).returncode == 0
    assert sexton("audit-log", "verify", "--state", folder, "--known", "f" * 64).returncode == 1
    bad = sexton("audit-log", "verify", "--state", folder, "--known", "xyz")
    assert (bad.returncode, len(bad.stderr.splitlines())) == (2, 1)
    listed = sexton("audit-log", "show", "--state", folder).stdout.decode().splitlines()
    assert [line.split()[0] for line in listed] == ["1", "2"]
    assert "\x1b" not in "".join(listed)
    place = tmp_path / "state/audit.log.jsonl"
    place.write_bytes(place.read_bytes().replace(b"because", b"Because", 1))
    damaged = sexton("audit-log", "verify", "--state", folder, "--json")
    assert damaged.returncode == 1
    assert json.loads(damaged.stdout)["damage"][0]["line"] == 1
