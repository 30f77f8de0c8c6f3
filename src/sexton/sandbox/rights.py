"""What else a confined process gives up: capabilities, and with Landlock the files it may write.

Landlock (Linux 5.13; Documentation/userspace-api/landlock.rst) is used where the kernel has it: its
version is asked for, and what a version does not know is left out. A process in a Landlock domain
may also not look into the memory of one outside, and from version 6 on not send it signals.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
from collections.abc import Sequence

_NO_NEW_PRIVILEGES, _GET_DUMPABLE, _SET_DUMPABLE = 38, 3, 4
#: The numbers are the same on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _BENEATH = 1, 1
#: linux/landlock.h: what changes files, by the version that knows it.
_WRITE, _REMOVE_DIRECTORY, _REMOVE = 1 << 1, 1 << 4, 1 << 5
_MAKE_DEVICES = 1 << 6 | 1 << 11
_MAKE_DIRECTORY, _MAKE_FILE = 1 << 7, 1 << 8
_MAKE_OTHERS = 1 << 9 | 1 << 10 | 1 << 12  # sockets, FIFOs, links
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_SCOPES_FROM, _SCOPE_SOCKETS, _SCOPE_SIGNALS = 6, 1 << 0, 1 << 1
_ALWAYS_WRITABLE = (os.devnull, "/dev/full", "/dev/tty")
#: capset(2), version 3, and the capabilities that remain (linux/capability.h): outputs may lie in
#: directories of others.
_CAPABILITY_VERSION = 0x20080522
_KEPT = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
#: Programs of containers are found at /proc/PID/root, and the kernel's symbols in /proc/kallsyms.
_KEPT_FOR_SYMBOLS = _KEPT | 1 << 19 | 1 << 34  # CAP_SYS_PTRACE, CAP_SYSLOG


def give_up_new_privileges() -> None:
    ctypes.CDLL(None).prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)


def dumpable() -> int:
    """Whether other processes of this user may read this one's memory: 1; 0 and 2 are no."""
    return int(ctypes.CDLL(None).prctl(_GET_DUMPABLE, 0, 0, 0, 0))


def set_dumpable(value: int) -> None:
    """As `dumpable`; the kernel sets 2 by itself and refuses to be given it."""
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, value & 1, 0, 0, 0)


def drop_capabilities(symbols: bool) -> None:
    """Keep what writing outputs needs, and with `symbols` what finding programs needs."""
    kept = _KEPT_FOR_SYMBOLS if symbols else _KEPT
    head, held = struct.pack("<Ii", _CAPABILITY_VERSION, 0), bytearray(24)
    call = ctypes.CDLL(None)
    data = (ctypes.c_char * 24).from_buffer(held)
    if call.capget(head, data) != 0:
        return
    words = struct.unpack("<6I", held)
    masks = (kept & 0xFFFFFFFF, kept >> 32)
    left = [word & masks[place // 3] for place, word in enumerate(words)]
    call.capset(head, struct.pack("<6I", *left))


def restrict_files(writable: Sequence[str] | None) -> None:
    """Let this thread, and what it starts, write only these files, each by way of a temporary one
    in its directory; a directory is written with all below it. `None`: every file. No effect
    without Landlock."""
    call = ctypes.CDLL(None, use_errno=True)
    version = call.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)
    if version < 1 or (version == 1 and writable is None):
        return  # version 1 lets no file be moved to another directory
    handled = _MAKE_DEVICES | (_REFER if version >= 2 else 0)
    if writable is not None:
        handled |= _WRITE | _REMOVE_DIRECTORY | _REMOVE | _MAKE_DIRECTORY | _MAKE_FILE
        handled |= _MAKE_OTHERS | (_TRUNCATE if version >= 3 else 0)
    attributes = struct.pack("<Q", handled)
    if version >= _SCOPES_FROM:
        attributes += struct.pack("<QQ", 0, _SCOPE_SOCKETS | _SCOPE_SIGNALS)
    rules = call.syscall(_CREATE_RULESET, attributes, len(attributes), 0)
    if rules < 0:
        return
    try:
        for path in (*_ALWAYS_WRITABLE, *(("/",) if writable is None else writable)):
            _allow(call, rules, path, handled)
        call.syscall(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow(call: ctypes.CDLL, rules: int, path: str, handled: int) -> None:
    """Rights on a device, or on a directory and all below it; a file needs those of its own."""
    for place in _places(path):
        with contextlib.suppress(OSError):
            opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
            try:
                directory = stat.S_ISDIR(os.fstat(opened).st_mode)
                rights = handled & (~_MAKE_DEVICES if directory else _WRITE | _TRUNCATE)
                rule = struct.pack("<Qi", rights, opened)
                call.syscall(_ADD_RULE, rules, _BENEATH, rule, 0)
            finally:
                os.close(opened)


def _places(path: str) -> list[str]:
    """What must be writable so that this output can be written or replaced."""
    if path == "-":  # standard output is open already
        return []
    real = os.path.realpath(path)
    if os.path.exists(real) and not os.path.isfile(real):
        return [real]
    places = [os.path.realpath(os.path.dirname(os.path.abspath(path)))]
    if path.startswith(("/dev/", "/proc/")):  # /dev/stdout may lead to a file
        places.append(os.path.dirname(real))
    for number, place in enumerate(places):
        while not os.path.exists(place):  # it is made
            place = os.path.dirname(place)
        places[number] = place
    return places
