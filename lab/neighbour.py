"""A process in a cgroup beside zombies, with page cache and anonymous memory that it can lose."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lab.zombie_maker import remove

_LIVING = """
import mmap, signal, sys
with open(sys.argv[1], "rb") as file:
    while file.read(1 << 20):
        pass
memory = mmap.mmap(-1, int(sys.argv[2]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for offset in range(0, len(memory), 4096):
    memory[offset] = 1
print("up", flush=True)
signal.pause()
"""


@contextlib.contextmanager
def neighbour(
    parent: Path, cache_bytes: int, anon_bytes: int, name: str = "neighbour"
) -> Iterator[Path]:
    """Yields its cgroup. Raises if the process died meanwhile."""
    home = parent / name
    home.mkdir()
    with tempfile.NamedTemporaryFile(dir="/var/tmp", prefix="neighbour-") as file:
        file.truncate(cache_bytes)  # a hole is page cache once it is read
        argv = [sys.executable, "-c", _LIVING, file.name, str(anon_bytes)]

        def move() -> None:
            (home / "cgroup.procs").write_text("0")

        child = subprocess.Popen(argv, stdout=subprocess.PIPE, preexec_fn=move)
        assert child.stdout is not None
        try:
            if child.stdout.readline() != b"up\n":
                raise RuntimeError("the neighbour did not start")
            yield home
            if child.poll() is not None:
                raise RuntimeError("the neighbour died")
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
            remove(home)


def memory_of(home: Path) -> tuple[int, int]:
    """Its page cache and anonymous memory in bytes, read without using code under test."""
    lines = (home / "memory.stat").read_text().splitlines()
    fields = {name: int(value) for name, value in (line.split() for line in lines)}
    if "total_cache" in fields:
        return fields["total_cache"], fields["total_rss"]
    return fields["file"], fields["anon"]
