"""A pipe becomes a file of known size before anything looks at its content."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sexton.errors import SourceError, SourceMalformed
from sexton.host import spool

LIMITS = """
import sys
from sexton import sandbox
sandbox.confine = lambda limits: print(limits.memory_bytes >> 20, limits.cpu_s, limits.what)
from sexton.cli.main import main
main(sys.argv[1:])
"""


@pytest.fixture
def pipe() -> tuple[str, int]:
    """The path of its reading end, and its writing end."""
    reading, writing = os.pipe()
    return f"/proc/self/fd/{reading}", writing


def test_the_descriptor_of_a_pipe_becomes_a_file_with_its_content(pipe: tuple[str, int]):
    path, writing = pipe
    os.write(writing, b"content")
    os.close(writing)
    spool.spool(path)
    spool.spool(path)  # it is a file by now
    number = spool.descriptor_of(path)
    assert number is not None
    try:
        assert os.fstat(number).st_size == 7
        assert Path(path).read_bytes() == b"content"
    finally:
        os.close(number)


def test_a_pipe_that_does_not_fit_is_refused(
    pipe: tuple[str, int], monkeypatch: pytest.MonkeyPatch
):
    path, writing = pipe
    monkeypatch.setattr(spool, "room", lambda: 3)
    os.write(writing, b"content")
    os.close(writing)
    with pytest.raises(SourceMalformed, match="more than 3 bytes: not enough disk space"):
        spool.spool(path)
    with pytest.raises(SourceError):
        spool.spool("/dev/fd/999999")


def test_other_paths_are_left_alone(tmp_path: Path):
    """A named pipe may never get a writer."""
    os.mkfifo(tmp_path / "fifo")
    spool.spool(str(tmp_path / "fifo"))
    spool.spool(str(tmp_path / "missing"))


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_a_capture_from_a_pipe_has_the_limits_of_its_size(name: str):
    argv = [sys.executable, "-c", LIMITS, "profile", "info", name]
    content = b"java;main;read 4\n" * (2 << 20 >> 4)
    ended = subprocess.run(argv, input=content, capture_output=True, check=True)
    assert ended.stdout.splitlines()[0] == b"517 47 standard input"
