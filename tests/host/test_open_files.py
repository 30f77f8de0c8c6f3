"""Files kept open between readings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.host import open_host
from sexton.host.open_files import HeldFiles, room
from sexton.model.task import Process
from sexton.sources.procfs.tasks import Tasks


def test_a_held_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "stat"
    path.write_bytes(b"one")
    held = HeldFiles()
    assert held.read(str(path), 100) == b"one"
    path.write_bytes(b"two")
    assert held.read(str(path), 100) == b"two"
    assert len(held) == 1
    with pytest.raises(SourceMalformed, match="larger than 2"):
        held.read(str(path), 2)
    held.keep_only({str(tmp_path / "other")})
    assert len(held) == 0


def test_past_its_bound_files_are_opened_and_closed_as_ever(tmp_path: Path) -> None:
    held = HeldFiles(most=1)
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode())
    assert [held.read(str(tmp_path / name), 10) for name in ("a", "b", "a", "b")] == [
        b"a", b"b", b"a", b"b",
    ]  # fmt: skip
    assert len(held) == 1
    held.close()


def test_what_is_not_there_is_absent_and_not_held(tmp_path: Path) -> None:
    held = HeldFiles()
    with pytest.raises(SourceAbsent):
        held.read(str(tmp_path / "nowhere"), 10)
    assert len(held) == 0


def test_a_process_that_ended_is_let_go_and_the_bound_leaves_room_for_others() -> None:
    assert room() <= 2048
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    held = HeldFiles()
    path = f"/proc/{child.pid}/stat"
    assert held.read(path, 4000).startswith(f"{child.pid} (".encode())
    child.communicate(b"\n")
    with pytest.raises(SourceAbsent):
        held.read(path, 4000)
    assert len(held) == 0


def test_a_lasting_host_keeps_processes_open_and_closes_them_in_the_end() -> None:
    host = open_host()
    host.lasting = True
    before = len(os.listdir("/proc/self/fd"))
    tasks = Tasks(host)
    first = [row for row in tasks.collect() if isinstance(row, Process)]
    assert len(os.listdir("/proc/self/fd")) > before
    again = [row for row in tasks.collect() if isinstance(row, Process)]
    assert {os.getpid(), 1} <= {row.pid for row in first} & {row.pid for row in again}
    tasks.close()
    assert len(os.listdir("/proc/self/fd")) == before
