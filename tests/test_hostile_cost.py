"""What any command takes of a machine for 10 MB of hostile input: 600 MB of memory, 60 s of CPU,
and an end without a traceback.

Memory is that of the whole process tree, sampled; the parent that reports a death counts too.
"""

from __future__ import annotations

import bz2
import gzip
import io
import os
import random
import resource
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.store.test_hostile import constant_rows
from tests.support import pprof
from tests.support.cli import ENVIRONMENT, SEXTON, sexton
from tests.support.recordings import replace_table, simple, write_sealed

MOST_INPUT, MOST_BYTES, MOST_CPU_S = 10 << 20, 600 << 20, 60
MARK = b"0123456789 "


def stacks(place: Path) -> None:
    """Folded stacks whose functions are all different."""
    dice = random.Random(1)
    with place.open("wb") as stream:
        while stream.tell() < MOST_INPUT - 1000:
            stack = b";".join(b"f%x" % dice.getrandbits(20) for _ in range(60))
            stream.write(stack + b" 1\n")


def rows(place: Path) -> None:
    """A recording with a table of few bytes and many rows."""
    place.mkdir()
    segment = write_sealed(place, [simple(1.0)])
    replace_table(segment, "mark", constant_rows(60), 60 << 20)


def archive(place: Path, files: dict[bytes, bytes]) -> None:
    """An archive of `sexton collect` with two snapshots of these files."""
    members = [("manifest", b"sexton.collect/1\nsnapshots 2\nseconds 1\n")]
    body = b"".join(MARK + b"file " + name + b"\n" + text for name, text in files.items())
    for number in (1, 2):
        clock = MARK + b"file /commands/clock\n%d.5 17900000%02d\n" % (1000 + number, number)
        bundle = b"sexton.bundle/1 0123456789\n\n" + clock + body + MARK + b"end\n"
        members.append((f"{number}/bundle", bundle))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in members:
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content))
    place.write_bytes(gzip.compress(packed.getvalue(), 6))


def cgroups(place: Path) -> None:
    """An archive of 90,000 cgroups."""
    name = b"/sys/fs/cgroup/a%d/memory.current"
    archive(place, {name % number: b"1\n" for number in range(90_000)})


def lines(place: Path) -> None:
    """An archive whose known files are all megabytes long."""
    text = b"cpu1 1 2 3 4 5 6 7 8 9 10\n" * (3_900_000 // 26)
    names = (b"stat", b"interrupts", b"softirqs", b"net/dev", b"vmstat", b"schedstat", b"net/snmp")
    archive(place, {b"/proc/" + name: text for name in names})


def zeros(place: Path) -> None:
    """A tar that unpacks to gigabytes."""
    about = tarfile.TarInfo("etc/os-release")
    about.size = 8 << 30
    packer = bz2.BZ2Compressor(9)
    with place.open("wb") as stream:
        stream.write(packer.compress(about.tobuf(tarfile.GNU_FORMAT)))
        for _ in range(50):
            stream.write(packer.compress(bytes(8 << 20)))
        stream.write(packer.flush())


def tree(place: Path) -> None:
    """A directory that looks like a node's."""
    for name in ("etc", "proc/1", "sys/fs/cgroup"):
        (place / name).mkdir(parents=True)
    (place / "etc/os-release").write_text("ID=x\n")
    for number, name in enumerate(("stat", "interrupts", "vmstat", "cgroups", "1/mountinfo")):
        line = b"cpu%d 1 2 3 4 5 6 7 8 9 10\n" % number
        (place / "proc" / name).write_bytes(line * (1_900_000 // len(line)))


#: Input, command; INPUT and OUT are replaced, and `-` reads the input from a pipe.
CASES = [
    (stacks, "profile top INPUT"),
    (stacks, "profile top -"),
    (stacks, "profile flame INPUT --out OUT.svg"),
    (rows, "diagnose --from INPUT"),
    (rows, "recording verify INPUT"),
    (rows, "recording info INPUT"),
    (rows, "recording export INPUT --out OUT --format csv"),
    (cgroups, "diagnose INPUT"),
    (cgroups, "zombies INPUT"),
    (lines, "diagnose -"),
    (lines, "diagnose INPUT --html OUT.html"),
    (zeros, "gate --root INPUT"),
    (zeros, "audit --root INPUT --save OUT.json"),
    (tree, "gate --root INPUT"),
    (tree, "diagnose --seconds 0.2 --root INPUT"),
    (tree, "zombies --seconds 0.2 --root INPUT"),
    (tree, "top --frames 1 --root INPUT"),
    (tree, "sources --root INPUT"),
]


@pytest.mark.whole
def test_a_stack_of_millions_of_single_fields_is_read(tmp_path: Path) -> None:
    """pprof lets a stack be a field per location. Each was added by copying those before it: these
    10 MB, of a few frames, ended at the limit of CPU time."""
    fields = pprof.number(1, 1) * 4_900_000 + pprof.text(2, pprof.packed(4, 40))
    (tmp_path / "profile").write_bytes(pprof.small() + pprof.text(2, fields))
    ended = sexton("profile", "top", str(tmp_path / "profile"))
    assert ended.returncode == 0, ended.stderr


class Watched(threading.Thread):
    """Samples the memory of a process and all below it."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.most, self.ended = pid, 0, threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.02):
            self.most = max(self.most, sum(map(private_bytes, below(self.pid))))


def below(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for known in found:
        try:
            threads = os.listdir(f"/proc/{known}/task")
            for thread in threads:
                children = Path(f"/proc/{known}/task/{thread}/children").read_text().split()
                found += map(int, children)
        except OSError:
            continue
    return found


def private_bytes(pid: int) -> int:
    """Memory that is not a file's; what a fork shares counts for each."""
    try:
        with open(f"/proc/{pid}/status") as stream:
            kept = [line.split() for line in stream if line.startswith(("RssAnon", "RssShmem"))]
    except OSError:
        return 0
    return sum(int(words[1]) for words in kept) << 10


@pytest.mark.whole
@pytest.mark.parametrize(("make", "command"), CASES, ids=[f"{m.__name__}: {c}" for m, c in CASES])
def test_ten_megabytes_take_no_more_than_they_may(
    tmp_path: Path, make: Callable[[Path], None], command: str
) -> None:
    source = tmp_path / "input"
    make(source)
    files = [source] if source.is_file() else [file for file in source.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= MOST_INPUT
    words = [
        word.replace("INPUT", str(source)).replace("OUT", str(tmp_path / "out"))
        for word in command.split()
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    feed = subprocess.Popen(["cat", source], stdout=subprocess.PIPE) if "-" in words else None
    began = time.monotonic()
    with (tmp_path / "stdout").open("wb") as stdout, (tmp_path / "stderr").open("w+b") as stderr:
        process = subprocess.Popen(
            [*SEXTON, *words],
            stdin=subprocess.DEVNULL if feed is None else feed.stdout,
            stdout=stdout,
            stderr=stderr,
            env=ENVIRONMENT,
        )
        watched = Watched(process.pid)
        watched.start()
        try:
            status = process.wait(300)
        finally:
            watched.ended.set()
            process.kill()
            watched.join()
            if feed is not None and feed.stdout is not None:
                feed.stdout.close()
                feed.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    said = (tmp_path / "stderr").read_text()
    print(
        f"{status} {watched.most >> 20} MB {cpu_s:.1f} s CPU {time.monotonic() - began:.1f} s", said
    )
    assert status in (0, 1, 2, 3)
    assert "Traceback" not in said
    assert watched.most <= MOST_BYTES
    assert cpu_s <= MOST_CPU_S
