"""The filter of system calls (seccomp): what a confined process may not do at all, and what it may
do only to itself.

It lists what is denied, not what is allowed: a new C library calls what no list of ours knows. The
filter is classic BPF (linux/filter.h) over `struct seccomp_data`: number, architecture, arguments.
Denied calls fail with EPERM; `clone3`, whose flags are in memory, with ENOSYS, upon which the C
library calls `clone`.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence
from typing import NamedTuple

_SET_SECCOMP, _MODE_FILTER = 22, 2
#: The second flag keeps older kernels from slowing us down against Spectre v4 (since 4.17).
_SET_MODE_FILTER, _ALL_THREADS, _FULL_SPEED = 1, 1, 4
ALLOW, _FAIL = 0x7FFF0000, 0x00050000
REFUSE, UNKNOWN = _FAIL | errno.EPERM, _FAIL | errno.ENOSYS
#: AUDIT_ARCH, column in the tables below, number of seccomp(2).
ARCHITECTURES = {"x86_64": (0xC000003E, 0, 317), "aarch64": (0xC00000B7, 1, 277)}
#: System calls of x86-64 and of aarch64 (asm/unistd_64.h, asm-generic/unistd.h); -1: has none.
DENIED = {
    # The network, and what could open sockets.
    "socket": (41, 198), "connect": (42, 203),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # Programs.
    "execve": (59, 221), "execveat": (322, 281),
    # Other processes.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272),
    "move_pages": (279, 239), "migrate_pages": (256, 238), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "setsid": (112, 157), "setpgid": (109, 154),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "ioprio_set": (251, 30),
    # Memory that no limit counts.
    "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "memfd_secret": (447, 447), "userfaultfd": (323, 282),
    # The kernel and the machine.
    "bpf": (321, 280), "perf_event_open": (298, 241), "fanotify_init": (300, 262),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "syslog": (103, 116), "acct": (163, 89), "vhangup": (153, 58), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "swapon": (167, 224), "swapoff": (168, 225),
    "sethostname": (170, 161), "setdomainname": (171, 162),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "iopl": (172, -1), "ioperm": (173, -1), "modify_ldt": (154, -1),
    # Mounts, namespaces, devices.
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "open_by_handle_at": (304, 265),
    "setns": (308, 268), "unshare": (272, 97), "mknod": (133, -1), "mknodat": (259, 33),
}  # fmt: skip
#: Denied as well to a process that needs no other: with them its limits could be multiplied.
_DENIED_ALONE = {"fork": (57, -1), "vfork": (58, -1)}
#: Denied as well to a process that is no server: one reads its private key through such memory.
_DENIED_BRIEF = {"memfd_create": (319, 279)}

#: CLONE_NEW*: namespaces.
_NAMESPACES, _THREAD = 0x7E020000, 0x00010000
_SHARED_ANONYMOUS = 0x21  # MAP_SHARED | MAP_ANONYMOUS: not counted by RLIMIT_DATA
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
#: Of socketpair(2). A datagram could be sent from one to any socket in the file system.
_STREAM, _PACKETS, _TYPE = 1, 5, 0xF

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _ANSWER = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16

Instruction = tuple[int, int, int, int]


class Who(NamedTuple):
    """The process that is filtered. `alone`: it starts no other; `brief`: it is no server."""

    pid: int
    parent: int
    alone: bool = False
    brief: bool = False


def install(who: Who) -> str:
    """Install the filter in every thread of this process; returns why not, empty if it worked. New
    privileges must have been given up."""
    import ctypes  # slow to import, and most commands read no untrusted file

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))

    machine = os.uname().machine
    if machine not in ARCHITECTURES or ctypes.sizeof(ctypes.c_void_p) != 8:
        return f"no filter for the system calls of {machine}"
    code = instructions(machine, who)
    program = Program(len(code) // 8, code)
    call = ctypes.CDLL(None, use_errno=True)
    number = ARCHITECTURES[machine][2]
    for flags in (_ALL_THREADS | _FULL_SPEED, _ALL_THREADS):
        if call.syscall(number, _SET_MODE_FILTER, flags, ctypes.byref(program)) == 0:
            return ""
    # Under a filter of older systemd's @system-service; for this thread and those it starts.
    if call.prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) == 0:
        return ""
    return f"cannot filter system calls: seccomp: {os.strerror(ctypes.get_errno())}"


def instructions(machine: str, who: Who) -> bytes:
    """The filter: per instruction a code, two jumps and a value."""
    architecture, column, _ = ARCHITECTURES[machine]
    tables = [DENIED, _DENIED_ALONE if who.alone else {}, _DENIED_BRIEF if who.brief else {}]
    numbers = sorted(
        calls[column] for table in tables for calls in table.values() if calls[column] >= 0
    )
    made: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT), (_EQUAL, 1, 0, architecture), (_ANSWER, 0, 0, REFUSE),
        (_LOAD, 0, 0, _NUMBER_AT),
        # The calls of x32 have this bit; no other call has so high a number.
        (_AT_LEAST, 0, 1, 0x40000000), (_ANSWER, 0, 0, REFUSE),
    ]  # fmt: skip
    for calls, block in _checked(who):
        number = calls[column]
        if number >= 0:
            made += [(_EQUAL, 0, len(block), number), *block]
    made += [(_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    made += [(_ANSWER, 0, 0, ALLOW), (_ANSWER, 0, 0, REFUSE)]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in made)


def _checked(who: Who) -> list[tuple[tuple[int, int], list[Instruction]]]:
    """Calls that depend on their arguments, and the instructions that answer them."""
    thread = [(_ANY_BIT, 1, 0, _THREAD), (_ANSWER, 0, 0, REFUSE)] if who.alone else []
    clone = [
        _argument(0), (_ANY_BIT, 0, 1, _NAMESPACES), (_ANSWER, 0, 0, REFUSE), *thread,
        (_ANSWER, 0, 0, ALLOW),
    ]  # fmt: skip
    if who.alone:
        signalled = _only(0, (who.pid,))
    else:  # its children, which the filter cannot know; no process group, and not its parent
        signalled = _all_but(0, (0, 1, who.parent), least=0x80000000)
    own = _only(0, (0, who.pid))
    return [
        ((56, 220), clone),
        ((435, 435), [(_ANSWER, 0, 0, UNKNOWN)]),  # clone3
        ((62, 129), signalled),  # kill
        ((200, 130), signalled),  # tkill
        ((234, 131), signalled),  # tgkill
        ((302, 261), own),  # prlimit64
        ((203, 122), own),  # sched_setaffinity
        # setpriority: which kind, then who
        ((141, 140), [_argument(0), (_EQUAL, 1, 0, 0), (_ANSWER, 0, 0, REFUSE), *_only(1, (0,))]),
        ((16, 29), _all_but(1, (_TIOCSTI, _TIOCLINUX))),  # ioctl
        ((53, 199), _only(1, (_STREAM, _PACKETS), _TYPE)),  # socketpair
        ((9, 222), _all_but(3, (_SHARED_ANONYMOUS,), mask=_SHARED_ANONYMOUS)),  # mmap
    ]


def _argument(number: int) -> Instruction:
    """Load the lower half of an argument; the kernel takes these arguments for 32 bits."""
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * number)


def _only(argument: int, values: Sequence[int], mask: int = 0) -> list[Instruction]:
    """Allow a call with one of these values."""
    tests = [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    masked = [(_AND, 0, 0, mask)] if mask else []
    return [_argument(argument), *masked, *tests, (_ANSWER, 0, 0, REFUSE), (_ANSWER, 0, 0, ALLOW)]


def _all_but(
    argument: int, values: Sequence[int], mask: int = 0, least: int = 0
) -> list[Instruction]:
    """Allow a call without one of these values, and below `least`."""
    tests = [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    high = [(_AT_LEAST, len(values) + 1, 0, least)] if least else []
    masked = [(_AND, 0, 0, mask)] if mask else []
    answers = [(_ANSWER, 0, 0, ALLOW), (_ANSWER, 0, 0, REFUSE)]
    return [_argument(argument), *masked, *high, *tests, *answers]
