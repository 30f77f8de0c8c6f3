"""Limits for a process that parses untrusted input: recordings, archives, images, captures.

How to use it. A command runs in a child process of its own (`sexton.cli.parent`). Before that child
reads the first byte of the input, it confines itself::

    from sexton.sandbox import confine, limits_for

    confine(limits_for(path))          # of a file or a directory: memory and CPU time by its size
    confine(limits_for())              # of a pipe, whose size is not known
    confine(limits_for(path)._replace(cpu_s=None))   # a server, which has no end
    confine(limits_for(path)._replace(live=True))    # it also needs D-Bus, or starts a program
    confine(limits_for(path)._replace(alone=True, writable=("out",)))  # no forks, one output

From then on

- its memory is bounded (RLIMIT_DATA): an allocation beyond it fails, and `MemoryError` becomes one
  line and exit 2 in `sexton.cli.main`;
- its CPU time is bounded (RLIMIT_CPU): the kernel ends it; its life too, by its parent or an alarm;
- it opens no connection, starts no program, and cannot use the system calls that `calls` denies,
  nor can anything it forks (seccomp, no new privileges);
- root's rights beyond reading and writing files are gone (`rights`), and where the kernel has
  Landlock, it writes only `Limits.writable` and reaches no process but its own.

What it forks has the same limits again, each for itself: only `Limits.alone` bounds their sum.

A confined process that dies of a signal is one line and exit 2: `sexton.cli.parent` prints it.
It cannot be undone, so `confine` works only in a process that declared itself expendable
(`expendable`): a test that calls `main` is not confined. Do this before Arrow or numpy is imported:
the choice of the memory pool is read then. Without seccomp in the kernel the limits remain, and a
line on standard error says so.

Readers still have to check sizes and counts before reading: a limit ends the command, a check skips
one file.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import resource
import signal
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

#: Python, numpy, Arrow and a segment take some 250 MB; the rest is for columns.
_LEAST_BYTES, _MOST_BYTES = 500 << 20, 3 << 30
#: Bytes of memory for each byte that is read: Parquet and tar.gz hold a fifth of what they say.
_TIMES = 8
#: Bytes of each output, the same: a row of an export repeats the names of its columns.
_TIMES_OUT = 100
#: CPU seconds: hostile input of 10 MB ends within a minute.
_LEAST_S, _BYTES_A_SECOND = 45, 1 << 20
#: After its CPU time a process is killed, and its parent waits as much longer for its end.
_AFTERWARDS_S = 5
#: Wall time per CPU second after which a process ends in any case; its parent is stricter, but
#: knows how long the process waited for a core.
_LIFE = 10
#: Files and directories of an input that are looked at to learn its size; a recording has fewer.
_MOST_FILES = 200_000
#: How much a process that is not confined reads at once.
_UNCONFINED_READ = 1 << 30

#: Of mallopt(3) and prctl(2).
_ARENA_MAX = -8
_SET_PARENT_DEATH_SIGNAL = 1


class Limits(NamedTuple):
    """What a confined process may use; `cpu_s` is `None` for a server, which has no end.

    `live`: it also reads this node, whose buses and programs it needs, so no call is denied and no
    right given up. `symbols`: it looks for symbols in the programs of this node, for which root
    keeps the right to look into other processes. `alone`: it starts no process, which would have
    limits of its own. `writable`: the only files it writes, where the kernel can enforce that;
    `None`: any. `output_bytes` is how large each may become. `what` is the input's path, for
    messages.
    """

    memory_bytes: int
    cpu_s: int | None = None
    live: bool = False
    symbols: bool = False
    alone: bool = False
    writable: tuple[str, ...] | None = None
    output_bytes: int | None = None
    what: str = ""


#: Whether this process may be confined, and the limits it has.
_expendable = False
_in_force: Limits | None = None
_note: mmap.mmap | None = None
_MOST_NOTE = 4096
#: A note begins with when the process must have ended (monotonic seconds; 0: never).
_DEADLINE = struct.Struct("d")


def expendable(note: mmap.mmap | None = None) -> None:
    """Declare that this process ends with its command, so that it may be limited for good. `note`
    is a `new_note` of its parent, which reads there what the process was reading when it died."""
    global _expendable, _note
    _expendable, _note = True, note


def new_note() -> mmap.mmap:
    """Memory to share with a child."""
    return mmap.mmap(-1, _MOST_NOTE)


class Noted(NamedTuple):
    """The untrusted input that a child confined itself to, empty if it did not, and when it must
    have ended (monotonic seconds; 0: never)."""

    reading: str
    deadline_s: float


def noted(note: mmap.mmap) -> Noted:
    """What is in a note. A child that was taken over may have written anything."""
    name = note[_DEADLINE.size :].rstrip(b"\0").decode("utf-8", "surrogateescape")
    return Noted(name, _DEADLINE.unpack_from(note)[0])


def in_force() -> Limits | None:
    """The limits of this process; `None` if it is not confined."""
    return _in_force


def limits_for(*paths: str | os.PathLike[str], growing: bool = False, times: int = 1) -> Limits:
    """Limits by the size of the input; holes in a file do not count. `growing`: it is still being
    written, so its current size does not matter. `times`: how often each byte is read.

    >>> limits_for("/dev/null").memory_bytes >> 20
    500
    """
    total = sum(_size(os.fspath(path)) for path in paths)
    memory = _MOST_BYTES if growing else min(_LEAST_BYTES + _TIMES * total, _MOST_BYTES)
    what = os.fspath(paths[0]) if paths else "standard input"
    megabytes = total // _BYTES_A_SECOND
    cpu_s = max(_LEAST_S + megabytes, times * megabytes)
    return Limits(memory, cpu_s, output_bytes=_LEAST_BYTES + _TIMES_OUT * total, what=what)


def confine(limits: Limits, quiet: bool = False) -> None:
    """Confine this process for the rest of its life. No effect if it is not expendable or already
    confined. `quiet`: do not print that system calls cannot be filtered here."""
    global _in_force
    if not _expendable or _in_force is not None:
        return
    # Arrow's own pool reserves 1 GB at once, which counts as used; the system's is as fast here.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    _share_one_heap()
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_DATA, limits.memory_bytes)
    deadline_s = 0.0
    if limits.cpu_s is not None:
        _lower(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + _AFTERWARDS_S)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LIFE * limits.cpu_s)
        deadline_s = time.monotonic() + limits.cpu_s + _AFTERWARDS_S
    missing = "" if limits.live else _give_up(limits)
    if missing and not quiet:
        print(f"sexton: {missing}; reading with limits on memory and time only", file=sys.stderr)
    _in_force = limits
    if _note is not None:
        name = os.fsencode(limits.what)[: _MOST_NOTE - _DEADLINE.size]
        _note[_DEADLINE.size : _DEADLINE.size + len(name)] = name
        if not limits.live:  # this node answers as late as it likes
            _DEADLINE.pack_into(_note, 0, deadline_s)


def _give_up(limits: Limits) -> str:
    """Give up rights for good; returns why system calls cannot be filtered, empty if they are."""
    from sexton.sandbox import calls, rights  # import ctypes

    rights.give_up_new_privileges()
    if not limits.symbols:
        rights.restrict_files(limits.writable)
    rights.drop_capabilities(limits.symbols)
    brief = limits.cpu_s is not None
    if brief and limits.output_bytes is not None:
        _lower(resource.RLIMIT_FSIZE, limits.output_bytes + _already_written())
    return calls.install(calls.Who(os.getpid(), os.getppid(), limits.alone, brief))


def _already_written() -> int:
    """The size of the files that standard output and error are appended to: that counts too."""
    sizes = [0]
    for number in (1, 2):
        with contextlib.suppress(OSError):
            about = os.fstat(number)
            sizes.append(about.st_size if stat.S_ISREG(about.st_mode) else 0)
    return max(sizes)


def confine_child(memory_bytes: int, cpu_s: int, symbols: bool = False) -> None:
    """Confine a child of the recorder after it has imported large libraries: `memory_bytes` are
    allowed beyond what those have reserved."""
    with open("/proc/self/statm", "rb") as stream:
        reserved = int(stream.read().split()[5]) * resource.getpagesize()
    expendable()
    confine(Limits(reserved + memory_bytes, cpu_s, symbols=symbols), quiet=True)


def _share_one_heap() -> None:
    """Use one malloc arena: glibc gives each thread its own and does not reuse memory freed in
    another, which took 40 of 480 MB when reading twelve hours."""
    import ctypes  # numpy loads it too

    with contextlib.suppress(AttributeError):  # musl has one heap anyway
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


def hide_memory() -> Callable[[], None]:
    """Keep other processes of this user out of this one's memory (/proc/PID/mem), and return what
    undoes it in a child. A parent hides before it forks: on a busy machine its child may run for a
    second before it does."""
    from sexton.sandbox import rights

    was = rights.dumpable()
    rights.set_dumpable(0)
    return lambda: rights.set_dumpable(was)


def end_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent exits."""
    import ctypes  # numpy loads it too

    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(number), 0, 0, 0)
    if os.getppid() != parent:  # it exited before
        os._exit(128 + number)


def outlive_parent() -> None:
    """Undo `end_with`."""
    import ctypes

    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, 0, 0, 0, 0)


def largest_read() -> int:
    """How many bytes one table or file may take in memory: half of this process's limit, since the
    caller needs memory for its result."""
    return _UNCONFINED_READ if _in_force is None else _in_force.memory_bytes // 2


def most_written() -> float:
    """How many bytes all outputs together may have."""
    most = None if _in_force is None else _in_force.output_bytes
    return math.inf if most is None else most


def cause_of_death(number: int, reading: str) -> str:
    """Why a process died of this signal, for messages; empty if another process sent it. `reading`
    is its untrusted input, empty if it had none."""
    words = {
        signal.SIGXCPU: "it exceeded the CPU time limit for its input",
        signal.SIGALRM: "it exceeded the time limit for its input",
        signal.SIGSYS: "it made a system call that is not allowed",
    }
    crashes = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
    if number in crashes:
        name = signal.Signals(number).name
        return f"it crashed ({name}): {'damaged or hostile input' if reading else 'a bug'}"
    return next((text for signalled, text in words.items() if signalled == number), "")


def _lower(which: int, soft: int, hard: int | None = None) -> None:
    """Set a limit, or keep a lower one."""
    wanted = (soft, soft if hard is None else hard)
    lower = [
        limit if known == resource.RLIM_INFINITY else min(limit, known)
        for limit, known in zip(wanted, resource.getrlimit(which), strict=True)
    ]
    resource.setrlimit(which, (min(lower), lower[1]))


def _size(path: str) -> int:
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return 0
    if not stat.S_ISDIR(about.st_mode):
        return _held(about)
    held = {(found.st_dev, found.st_ino): _held(found) for found in _files(path)}
    return sum(held.values())  # the bytes of hard links count once


def _held(about: os.stat_result) -> int:
    return min(about.st_size, about.st_blocks * 512) if stat.S_ISREG(about.st_mode) else 0


def _files(path: str) -> Iterator[os.stat_result]:
    """The files below a directory, as far as `_MOST_FILES` reaches."""
    left = _MOST_FILES
    for place, directories, names in os.walk(path):
        for name in names[:left]:
            try:
                yield os.lstat(os.path.join(place, name))
            except OSError:
                continue
        left -= len(names) + len(directories)
        if left <= 0:
            return
