"""Captures of a load that forks, renames and execs, and what `perf script` says of each sample."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import NamedTuple

from tests.support.tools import need

#: Seconds; long enough for every kind of task below to be caught on a core.
LONG = 2.0

#: Tasks that are forked, renamed, exec'd and reaped while perf looks on.
LOAD = r"""
import ctypes, os, subprocess, sys, threading, time
end = time.monotonic() + float(sys.argv[1])
prctl = ctypes.CDLL(None).prctl
def burn(seconds):
    until = min(end, time.monotonic() + seconds)
    while time.monotonic() < until:
        sum(range(200))
def renaming():
    for name in (b"first name", b"second:[1]", b"\xff\xfe odd", b"7/7 [000] 1.0:"):
        prctl(15, name, 0, 0, 0)
        burn(0.15)
def forked():
    pid = os.fork()
    if pid == 0:
        burn(0.1)
        os.execv("/bin/sh", ["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
    os.waitpid(pid, 0)
threads = [threading.Thread(target=renaming), threading.Thread(target=time.sleep, args=(0.2,))]
for thread in threads: thread.start()
dd = subprocess.Popen(["dd", "if=/dev/zero", "of=/dev/null", "bs=4k", "count=200000"],
                      stderr=subprocess.DEVNULL)
while time.monotonic() < end:
    forked()
    subprocess.run(["sh", "-c", "for i in 1 2 3 4 5; do /bin/true; done; ls / > /dev/null"])
    burn(0.05)
dd.kill()
dd.wait()
for thread in threads: thread.join()
"""

_SAMPLE = re.compile(
    rb"^(.*?)\s+(-?\d+)/(-?\d+)\s+(?:\[(\d+)\]\s+)?(\d+)\.(\d{9}):\s+(\S+):\s*([0-9a-f]+)?\s*$"
)
# Of a pipe it shows names, asked or not.
_FRAME = re.compile(rb"^\t\s*([0-9a-f]+)(?: .*)?$")


class Sample(NamedTuple):
    """One sample as `perf script` prints it; `cpu` is -1 where it does not."""

    time_ns: int
    cpu: int
    pid: int
    tid: int
    #: Without line breaks, and without blanks at its ends.
    comm: str
    event: str
    frames: tuple[int, ...]


def load(seconds: float = LONG) -> list[str]:
    return [sys.executable, "-c", LOAD, str(seconds)]


def perf_record(path, *flags: str, command: list[str] | None = None) -> str:
    """A capture at `path`; the load runs under perf unless told otherwise."""
    perf = need("perf", package="linux-perf")
    argv = [perf, "record", "-q", *flags, "-o", str(path), "--", *(command or load())]
    subprocess.run(argv, check=True, capture_output=True, timeout=60)
    return str(path)


def perf_script(path: str, *, cpu: bool = True) -> list[Sample]:
    """What `perf script` makes of it, every field it has, in its own order."""
    perf = need("perf", package="linux-perf")
    fields = "comm,pid,tid,time,event,ip" + (",cpu" if cpu else "")
    argv = [perf, "script", "--ns", "--no-inline", "--max-stack", "1024", "-F", fields, "-i", path]
    shown = subprocess.run(argv, check=True, capture_output=True, timeout=120).stdout
    return parse_script(shown)


def parse_script(shown: bytes) -> list[Sample]:
    found: list[Sample] = []
    frames: list[int] = []
    begun = b""  # of a comm with a line break in it
    for line in shown.split(b"\n"):
        if (frame := _FRAME.match(line)) is not None:
            frames.append(int(frame[1], 16))
            found[-1] = found[-1]._replace(frames=tuple(frames))
        elif (head := _SAMPLE.match(begun + line)) is not None:
            begun = b""
            comm, pid, tid, cpu, seconds, rest, event, ip = head.groups()
            frames = [] if ip is None else [int(ip, 16)]
            found.append(
                Sample(
                    int(seconds) * 1_000_000_000 + int(rest),
                    -1 if cpu is None else int(cpu),
                    int(pid),
                    int(tid),
                    comm.strip().decode("utf-8", "surrogateescape"),
                    event.decode(),
                    tuple(frames),
                )
            )
        else:
            begun += line
    assert not begun, begun
    return found
