"""Is a process stuck in the kernel, and in which call?

A call on a mount whose server is gone (NFS, a stopped FUSE), on a dying disk, or on anything that
waits for a core which a realtime task holds, may never return, and nothing inside the process can
end it: a signal is not delivered, or its handler never runs. So another process looks at it
(`sexton.cli.parent`), through files that say where each thread is and wait for nothing::

    /proc/PID/task/TID/syscall   257 0xffffff9c 0x7f31f0c5e3d0 0x80000 … 0x7fff9a047e88 0x7f25844f
    /proc/PID/task/TID/wchan     request_wait_answer

The first has the number of the system call, its six arguments, stack and instruction pointer
(proc(5)); ``running`` if the thread is not blocked, and -1 if it is blocked in a page fault. A
thread that was in the same call and used no CPU time since the last look made no step.

A program waits on purpose as well: for a timer, another thread, a pipe, a lock. Those calls are
listed here, each with the argument that bounds it in time; any other call is expected to return.
Where the kernel does not show these files (Yama, another user), nothing is called stuck.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import NamedTuple

_ENDLESS = -1
#: System calls that wait on purpose, x86-64 and aarch64 (asm/unistd_64.h, asm-generic/unistd.h):
#: which argument is the timeout, and its value for "no timeout". `_ENDLESS`: they have none.
_WAITS = {
    "futex": (202, 98, 3, 0), "futex_waitv": (449, 449, 3, 0),
    "poll": (7, None, 2, 0xFFFFFFFF), "ppoll": (271, 73, 2, 0),
    "select": (23, None, 4, 0), "pselect6": (270, 72, 4, 0),
    "epoll_wait": (232, None, 3, 0xFFFFFFFF), "epoll_pwait": (281, 22, 3, 0xFFFFFFFF),
    "epoll_pwait2": (441, 441, 3, 0), "rt_sigtimedwait": (128, 137, 2, 0),
    "wait4": (61, 260, _ENDLESS, 0), "waitid": (247, 95, _ENDLESS, 0),
    "recvfrom": (45, 207, _ENDLESS, 0), "recvmsg": (47, 212, _ENDLESS, 0),
    "sendto": (44, 206, _ENDLESS, 0), "sendmsg": (46, 211, _ENDLESS, 0),
    "accept": (43, 202, _ENDLESS, 0), "accept4": (288, 242, _ENDLESS, 0),
    "flock": (73, 32, _ENDLESS, 0), "pause": (34, None, _ENDLESS, 0),
    "rt_sigsuspend": (130, 133, _ENDLESS, 0),
}  # fmt: skip
#: These end by themselves.
_TIMERS = {"nanosleep": (35, 101), "clock_nanosleep": (230, 115), "restart_syscall": (219, 128)}
#: These wait on purpose if their descriptor is a pipe, a socket or a terminal.
_STREAMS = {"read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66)}
#: Which argument is a path, or a descriptor: for messages.
_PATHS = {
    "open": (2, None, 0), "stat": (4, None, 0), "lstat": (6, None, 0), "access": (21, None, 0),
    "readlink": (89, None, 0), "mkdir": (83, None, 0), "statfs": (137, 43, 0),
    "openat": (257, 56, 1), "newfstatat": (262, 79, 1), "statx": (332, 291, 1),
    "readlinkat": (267, 78, 1), "faccessat": (269, 48, 1), "faccessat2": (439, 439, 1),
    "mkdirat": (258, 34, 1), "unlinkat": (263, 35, 1),
}  # fmt: skip
_DESCRIPTORS = {
    "fstat": (5, 80), "lseek": (8, 62), "pread64": (17, 67), "pwrite64": (18, 68),
    "fsync": (74, 82), "fdatasync": (75, 83), "fstatfs": (138, 44), "getdents64": (217, 61),
    **_STREAMS,
}  # fmt: skip
#: An open of a FIFO waits here for its other end.
_FIFO = "wait_for_partner"
_MOST_PATH = 4096
_COLUMN = {"x86_64": 0, "aarch64": 1}

RUNS, TIMED, WAITS, CALL = "runs", "timed", "waits", "call"


def waited_s(pid: int) -> float | None:
    """How long the first thread of a process was ready to run without a core; `None` where the
    kernel does not count that.

    >>> waited_s(os.getpid()) is None or waited_s(os.getpid()) >= 0
    True
    """
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as stream:
            return int(stream.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


class Thread(NamedTuple):
    """Where one thread is: it `RUNS`, waits with an end (`TIMED`) or without (`WAITS`), or is in a
    `CALL` that should return. `step` changes whenever it gets any further."""

    pid: int
    tid: int
    kind: str
    step: tuple[str, ...]

    @property
    def call(self) -> list[int]:
        """Number and arguments of its system call; empty if it is not in one."""
        words = self.step[0].split()
        return [int(word, 0) for word in words[:7]] if len(words) > 3 else []


class Watch:
    """Looks at a process again and again. `look` names the thread that the command waits for."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._column = _COLUMN.get(os.uname().machine)
        #: By thread: where it was, and for how long.
        self._known: dict[tuple[int, int], tuple[Thread, float]] = {}
        self._last_s = time.monotonic()

    def look(self, limit_s: float, ending: bool, most_s: float) -> Thread | None:
        """The thread without which the process cannot continue, if it made no step for `limit_s`.

        `ending`: the process was asked to end, so waiting for a reader or a lock is no excuse.
        `most_s`: only so much of the time since the last look counts, because this process may
        have been stopped or starved in between, together with the one it looks at.
        """
        now_s = time.monotonic()
        passed_s, self._last_s = min(now_s - self._last_s, most_s), now_s
        before, self._known = self._known, {}
        for thread in self._threads():
            key = thread.pid, thread.tid
            known = before.get(key)
            still = known is not None and known[0].step == thread.step
            self._known[key] = thread, (known[1] + passed_s if still and known else 0.0)
        main, stays_s = self._known.get((self._pid, self._pid), (None, 0.0))
        if main is None or stays_s < limit_s:
            return None
        if main.kind != WAITS:
            return main if main.kind == CALL else None
        others = [found for key, found in self._known.items() if key != (self._pid, self._pid)]
        for thread, idle_s in others:
            if thread.kind == CALL and idle_s >= limit_s:
                return thread
        return main if ending and all(idle_s >= limit_s for _, idle_s in others) else None

    def place(self, thread: Thread) -> tuple[str, str]:
        """The path that its call is about and the kernel function it waits in; empty if unknown."""
        return self._path(thread), wchan(thread.pid, thread.tid)

    def _threads(self) -> Iterator[Thread]:
        pending = [self._pid]
        while pending and self._column is not None:
            pid = pending.pop()
            for tid in _numbers(f"/proc/{pid}/task"):
                place = f"/proc/{pid}/task/{tid}"
                with contextlib.suppress(OSError, ValueError, IndexError):
                    yield self._thread(pid, tid, place)
                with contextlib.suppress(OSError):
                    pending += map(int, _read(f"{place}/children").split())

    def _thread(self, pid: int, tid: int, place: str) -> Thread:
        call = _read(f"{place}/syscall").strip()
        fields = _read(f"{place}/stat").rpartition(")")[2].split()
        switches = [line for line in _read(f"{place}/status").splitlines() if "_switches" in line]
        thread = Thread(pid, tid, RUNS, (call, *fields[11:13], *switches))
        return thread if fields[0] in "RZX" else thread._replace(kind=self._kind(thread))

    def _kind(self, thread: Thread) -> str:
        """What a thread that does not run waits for."""
        if thread.step[0] == "running":
            return RUNS
        called = thread.call
        if not called:  # a page fault
            return CALL
        number, *arguments = called
        at = self._column or 0
        if any(number == numbers[at] for numbers in _TIMERS.values()):
            return TIMED
        for *numbers, which, without in _WAITS.values():
            if number == numbers[at]:
                endless = which == _ENDLESS or arguments[which] & 0xFFFFFFFF == without
                return WAITS if endless else TIMED
        if any(number == numbers[at] for numbers in _STREAMS.values()):
            target = _target(thread.pid, arguments[0])
            if target.startswith(("pipe:", "socket:", "/dev/")):
                return WAITS
        return WAITS if wchan(thread.pid, thread.tid) == _FIFO else CALL

    def _path(self, thread: Thread) -> str:
        at = self._column or 0
        number, *arguments = thread.call or [-1]
        if any(number == numbers[at] for numbers in _DESCRIPTORS.values()):
            return _target(thread.pid, arguments[0])
        for *numbers, which in _PATHS.values():
            if number == numbers[at]:
                return self._text(thread.pid, arguments[which])
        return ""

    def _text(self, pid: int, address: int) -> str:
        """A string in the memory of the process.

        Reading it waits for whoever changes that memory. So not while another thread is in a call
        that may do so and does not end.
        """
        for thread, _ in self._known.values():
            known = thread.call[:1] or [-1]
            paths = {numbers[self._column or 0] for numbers in _PATHS.values()}
            if thread.pid == pid and thread.kind == CALL and known[0] not in paths:
                return ""
        with contextlib.suppress(OSError, OverflowError):
            memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.fsdecode(os.pread(memory, _MOST_PATH, address).partition(b"\0")[0])
            finally:
                os.close(memory)
        return ""


def wchan(pid: int, tid: int) -> str:
    """The kernel function in which a thread waits; empty if it runs or the kernel does not say."""
    with contextlib.suppress(OSError):
        return _read(f"/proc/{pid}/task/{tid}/wchan").removeprefix("0")
    return ""


def _target(pid: int, descriptor: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/fd/{descriptor & 0xFFFFFFFF}")
    return ""


def _numbers(directory: str) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(directory)]
    return []


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as stream:
        return stream.read()
