"""Limits for a process that parses untrusted input: recordings, archives, images, captures.

How to use it. A command runs in a child process of its own (`sexton.cli.parent`). Before that child
reads the first byte of the input, it confines itself::

    from sexton.sandbox import confine, limits_for

    confine(limits_for(path))          # of a file or a directory: memory and CPU time by its size
    confine(limits_for())              # of a pipe, whose size is not known
    confine(limits_for(path)._replace(cpu_s=None))   # a server, which has no end
    confine(limits_for(path)._replace(live=True))    # it also needs D-Bus, or starts a program

From then on

- its memory is bounded (RLIMIT_DATA): an allocation beyond it fails, and `MemoryError` becomes one
  line and exit 2 in `sexton.cli.main`;
- its CPU time and its life are bounded (RLIMIT_CPU, an alarm): the kernel ends it;
- it opens no connection, starts no program, and cannot use the system calls in `_DENIED`, nor can
  anything it forks (seccomp, no new privileges). Files may be written: commands have outputs.

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
import mmap
import os
import resource
import signal
import stat
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

#: Python, numpy, Arrow and a segment take some 250 MB; the rest is for columns.
_LEAST_BYTES, _MOST_BYTES = 500 << 20, 3 << 30
#: Bytes of memory for each byte that is read: Parquet and tar.gz hold a fifth of what they say.
_TIMES = 8
#: CPU seconds: hostile input of 10 MB ends within a minute.
_LEAST_S, _BYTES_A_SECOND = 45, 1 << 20
#: Wall time allowed per CPU second: a process may wait for a slow disk.
_LIFE = 10
#: Files and directories of an input that are looked at to learn its size; a recording has fewer.
_MOST_FILES = 200_000
#: How much a process that is not confined reads at once.
_UNCONFINED_READ = 1 << 30

#: Of mallopt(3) and prctl(2).
_ARENA_MAX = -8
_SET_PARENT_DEATH_SIGNAL = 1
_SET_SECCOMP, _MODE_FILTER, _SET_NO_NEW_PRIVILEGES = 22, 2, 38
#: The second flag keeps older kernels from slowing us down against Spectre v4 (since 4.17).
_SET_MODE_FILTER, _ALL_THREADS, _FULL_SPEED = 1, 1, 4
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM
_ARCHITECTURES = {"x86_64": (0xC000003E, 0, 317), "aarch64": (0xC00000B7, 1, 277)}
#: System calls of x86-64 and of aarch64 (asm/unistd_64.h, asm-generic/unistd.h); -1: has none.
_DENIED = {
    "socket": (41, 198), "connect": (42, 203),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "execve": (59, 221), "execveat": (322, 281),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "userfaultfd": (323, 282),
    "bpf": (321, 280), "perf_event_open": (298, 241),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsmount": (432, 432), "mount_setattr": (442, 442), "open_by_handle_at": (304, 265),
    "setns": (308, 268), "unshare": (272, 97),
    "swapon": (167, 224), "swapoff": (168, 225),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "iopl": (172, -1), "ioperm": (173, -1), "modify_ldt": (154, -1),
}  # fmt: skip


class Limits(NamedTuple):
    """What a confined process may use; `cpu_s` is `None` for a server, which has no end.

    `live`: it also reads this node, whose buses and programs it needs, so no call is denied.
    `what` is the input's path, for messages.
    """

    memory_bytes: int
    cpu_s: int | None = None
    live: bool = False
    what: str = ""


#: Whether this process may be confined, and the limits it has.
_expendable = False
_in_force: Limits | None = None
_note: mmap.mmap | None = None
_MOST_NOTE = 4096


def expendable(note: mmap.mmap | None = None) -> None:
    """Declare that this process ends with its command, so that it may be limited for good. `note`
    is a `new_note` of its parent, which reads there what the process was reading when it died."""
    global _expendable, _note
    _expendable, _note = True, note


def new_note() -> mmap.mmap:
    """Memory to share with a child."""
    return mmap.mmap(-1, _MOST_NOTE)


def noted(note: mmap.mmap) -> str:
    """The input that the child confined itself to; empty if it did not."""
    return note[:].rstrip(b"\0").decode("utf-8", "surrogateescape")


def in_force() -> Limits | None:
    """The limits of this process; `None` if it is not confined."""
    return _in_force


def limits_for(*paths: str | os.PathLike[str], growing: bool = False) -> Limits:
    """Limits by the size of the input; holes in a file do not count. `growing`: it is still being
    written, so its current size does not matter.

    >>> limits_for("/dev/null").memory_bytes >> 20
    500
    """
    total = sum(_size(os.fspath(path)) for path in paths)
    memory = _MOST_BYTES if growing else min(_LEAST_BYTES + _TIMES * total, _MOST_BYTES)
    what = os.fspath(paths[0]) if paths else "standard input"
    return Limits(memory, _LEAST_S + total // _BYTES_A_SECOND, what=what)


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
    if limits.cpu_s is not None:
        _lower(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 5)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LIFE * limits.cpu_s)
    missing = "" if limits.live else _filter_calls()
    if missing and not quiet:
        print(f"sexton: {missing}; reading with limits on memory and time only", file=sys.stderr)
    _in_force = limits
    if _note is not None:
        name = os.fsencode(limits.what)[:_MOST_NOTE]
        _note[: len(name)] = name


def confine_child(memory_bytes: int, cpu_s: int) -> None:
    """Confine a child of the recorder after it has imported large libraries: `memory_bytes` are
    allowed beyond what those have reserved."""
    with open("/proc/self/statm", "rb") as stream:
        reserved = int(stream.read().split()[5]) * resource.getpagesize()
    expendable()
    confine(Limits(reserved + memory_bytes, cpu_s), quiet=True)


def _share_one_heap() -> None:
    """Use one malloc arena: glibc gives each thread its own and does not reuse memory freed in
    another, which took 40 of 480 MB when reading twelve hours."""
    import ctypes  # numpy loads it too

    with contextlib.suppress(AttributeError):  # musl has one heap anyway
        ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)


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


def _filter_calls() -> str:
    """Install the filter in every thread of this process; returns why not, empty if it worked."""
    import ctypes  # slow to import, and most commands read no untrusted file

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    machine = os.uname().machine
    if machine not in _ARCHITECTURES or ctypes.sizeof(ctypes.c_void_p) != 8:
        return f"no filter for the system calls of {machine}"
    code = _instructions(machine)
    program = Program(len(code) // 8, code)
    call = ctypes.CDLL(None, use_errno=True)
    if call.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0:
        number = _ARCHITECTURES[machine][2]
        for flags in (_ALL_THREADS | _FULL_SPEED, _ALL_THREADS):
            if call.syscall(number, _SET_MODE_FILTER, flags, ctypes.byref(program)) == 0:
                return ""
        # Under a filter of older systemd's @system-service; for this thread and those it starts.
        if call.prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) == 0:
            return ""
    return f"cannot filter system calls: seccomp: {os.strerror(ctypes.get_errno())}"


def _instructions(machine: str) -> bytes:
    """The filter as classic BPF (linux/filter.h): per instruction a code, two jumps and a value."""
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    architecture, column, _ = _ARCHITECTURES[machine]
    numbers = sorted(calls[column] for calls in _DENIED.values() if calls[column] >= 0)
    made = [(load, 0, 0, 4), (equal, 0, len(numbers) + 3, architecture), (load, 0, 0, 0)]
    # The calls of x32 have this bit; no other call has so high a number.
    made.append((at_least, len(numbers) + 1, 0, 0x40000000))
    made += [(equal, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    made += [(answer, 0, 0, _ALLOW), (answer, 0, 0, _REFUSE)]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in made)
