"""bpf(2) by its system call number: the commands that we need, without a library.

Each command takes a `union bpf_attr` (include/uapi/linux/bpf.h), of which we fill the beginning:
the kernel accepts any length and requires unknown fields to be zero. Everything made here is a file
descriptor of this process, closed on exec: when the process ends, in whatever way, programs and
maps go with it. Nothing is pinned.

Quirks: kernels before 5.11 charge maps to RLIMIT_MEMLOCK and return EPERM when it is used up, just
as without the capability; so the limit is raised once, and only after EPERM. A program that the
verifier rejects fails with EINVAL or EACCES and the reason in the log's last lines; EPERM there
means a missing capability. `run_time_ns` and `run_cnt` of a program count only while a process
holds BPF_ENABLE_STATS (5.8) or the sysctl is set.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
from functools import cache
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceDenied, SourceError, SourceMalformed
from sexton.host.reader import failure

PATH = "bpf(2)"
GRANT = "as root, or with CAP_BPF and CAP_PERFMON (before Linux 5.8: CAP_SYS_ADMIN)"
ARRAY, PERCPU_ARRAY = 2, 6
LICENSE = b"Dual MIT/GPL\0"
MAP_CREATE, LOOKUP, UPDATE, PROG_LOAD, INFO_BY_FD, RAW_TRACEPOINT, STATS = 0, 1, 2, 5, 15, 17, 32
RAW_TRACEPOINT_PROGRAM = 17
_NUMBERS = {
    "x86_64": 321,
    "aarch64": 280,
    "riscv64": 280,
    "loongarch64": 280,
    "ppc64le": 361,
    "ppc64": 361,
    "s390x": 351,
}
_LOG_BYTES = 1 << 16
#: Size of `struct bpf_prog_info` through `run_cnt`, and the offsets of its fields.
_INFO_BYTES, _RUN_AT = 208, 192


class Runs(NamedTuple):
    """A program's cost while the kernel measured: nanoseconds in it, and number of runs."""

    run_ns: int
    times: int


def number(machine: str, pointer_bytes: int) -> int:
    """The system call's number; a 32-bit Python would need another ABI.

    >>> number("aarch64", 8)
    280
    """
    found = _NUMBERS.get(machine)
    if found is None or pointer_bytes != 8:
        raise SourceAbsent(PATH, f"not supported on {machine}", grant="")
    return found


def call(command: int, attributes: bytes | bytearray) -> int:
    """One command; raises `OSError`. The buffers that `attributes` points to must stay alive.

    What the kernel writes back is in `attributes` if that is a bytearray.
    """
    library, which = _kernel()
    held = attributes if isinstance(attributes, bytearray) else bytearray(attributes)
    buffer = (ctypes.c_char * len(held)).from_buffer(held)
    arguments = (ctypes.c_int(command), buffer, ctypes.c_uint(len(held)))
    answer = library.syscall(ctypes.c_long(which), *arguments)
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(answer)


def create_map(kind: int, value_bytes: int, name: bytes) -> int:
    """Make a map of one value, under key 0; returns its descriptor."""
    attributes = struct.pack("=7I16s", kind, 4, value_bytes, 1, 0, 0, 0, name)
    try:
        return call(MAP_CREATE, attributes)
    except OSError as error:
        if error.errno != errno.EPERM or not _unlock_memory():
            raise refused(error) from None
    try:
        return call(MAP_CREATE, attributes)
    except OSError as error:
        raise refused(error) from None


def load(code: bytes, name: bytes) -> int:
    """Load a raw tracepoint program; returns its descriptor."""
    program = ctypes.create_string_buffer(code, len(code))
    granted = ctypes.create_string_buffer(LICENSE)
    log = ctypes.create_string_buffer(_LOG_BYTES)
    head = (RAW_TRACEPOINT_PROGRAM, len(code) // 8, _address(program), _address(granted))

    def attempt(level: int, room: int) -> int:
        where = _address(log) if room else 0
        return call(PROG_LOAD, struct.pack("=IIQQIIQII16s", *head, level, room, where, 0, 0, name))

    try:
        return attempt(0, 0)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EACCES):
            raise refused(error) from None
    try:
        return attempt(1, _LOG_BYTES)  # a log costs time, so only for a rejected program
    except OSError as error:
        raise SourceMalformed(PATH, 0, refusal(log.value, error)) from None


def refusal(log: bytes, error: OSError) -> str:
    """The verifier's reason; the lines after it are only statistics.

    >>> refusal(b"0: (95) exit\\nR0 !read_ok\\nprocessed 1 insns\\n", OSError(13, ""))
    'the verifier rejected our program: R0 !read_ok'
    """
    lines = [line for line in log.decode("utf-8", "replace").splitlines() if line.strip()]
    words = [line for line in lines if not line.startswith(("processed ", "verification time"))]
    last = words[-1] if words else os.strerror(error.errno or 0)
    return f"the verifier rejected our program: {last.strip()}"


def attach(tracepoint: bytes, program: int) -> int:
    """Run `program` at each hit, until the descriptor is closed."""
    name = ctypes.create_string_buffer(tracepoint)
    try:
        return call(RAW_TRACEPOINT, struct.pack("=QII", _address(name), program, 0))
    except OSError as error:
        if error.errno == errno.ENOENT:
            what = f"this kernel has no tracepoint {tracepoint.decode()}"
            raise SourceAbsent(PATH, what, grant="") from None
        raise refused(error) from None


def lookup(descriptor: int, size: int) -> bytes:
    """The value of a map; of a per-CPU map, one value per core."""
    key, value = ctypes.create_string_buffer(4), ctypes.create_string_buffer(size)
    try:
        call(LOOKUP, struct.pack("=IxxxxQQQ", descriptor, _address(key), _address(value), 0))
    except OSError as error:
        raise refused(error) from None
    return value.raw


def update(descriptor: int, content: bytes) -> None:
    """Replace the value of a map."""
    key = ctypes.create_string_buffer(4)
    value = ctypes.create_string_buffer(content, len(content))
    try:
        call(UPDATE, struct.pack("=IxxxxQQQ", descriptor, _address(key), _address(value), 0))
    except OSError as error:
        raise refused(error) from None


def enable_stats() -> int | None:
    """Have the kernel measure programs, until the descriptor is closed.

    `None` where it cannot: before 5.8, or without CAP_SYS_ADMIN, which only this needs.
    """
    try:
        return call(STATS, struct.pack("=I", 0))
    except OSError:
        return None


def runs(program: int) -> Runs | None:
    """A program's cost; `None` if the kernel does not report it (before 5.1)."""
    answer = information(program)
    if answer is None or len(answer) < _INFO_BYTES:
        return None
    return Runs(*struct.unpack_from("=QQ", answer, _RUN_AT))


def information(program: int) -> bytes | None:
    """The beginning of `struct bpf_prog_info`, as much as this kernel fills."""
    answer = ctypes.create_string_buffer(_INFO_BYTES)
    attributes = bytearray(struct.pack("=IIQ", program, _INFO_BYTES, _address(answer)))
    try:
        call(INFO_BY_FD, attributes)
    except OSError:
        return None
    _, filled, _ = struct.unpack("=IIQ", attributes)
    return answer.raw[: int(filled)]


def refused(error: OSError) -> SourceError:
    """The `SourceError` for a failed bpf(2) call."""
    if error.errno == errno.ENOSYS:
        return SourceAbsent(PATH, "this kernel is built without it (CONFIG_BPF_SYSCALL)", grant="")
    if error.errno in (errno.EPERM, errno.EACCES):
        return SourceDenied(PATH, f"not permitted: {GRANT}; lockdown or seccomp may also block it")
    if error.errno == errno.EINVAL:
        what = "this kernel does not know the command (raw tracepoints came with Linux 4.17)"
        return SourceAbsent(PATH, what, grant="")
    return failure(PATH, error)


@cache
def _kernel() -> tuple[ctypes.CDLL, int]:
    which = number(os.uname().machine, ctypes.sizeof(ctypes.c_void_p))
    return ctypes.CDLL(None, use_errno=True), which


def _unlock_memory() -> bool:
    try:
        before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY,) * 2)
    except (OSError, ValueError):  # ValueError: the hard limit may not be raised
        return False
    return before[0] != resource.RLIM_INFINITY


def _address(buffer: ctypes.Array[ctypes.c_char]) -> int:
    return ctypes.addressof(buffer)
