"""Hold a core inside the kernel with its softirqs off, and one packet waiting: for real, for 2 s.

A traffic-classifier program is run once by the kernel (BPF_PROG_TEST_RUN): with softirqs disabled
it puts a copy of its packet into the backlog of the loopback, which raises NET_RX on this core as
any packet would, and then goes round in loops. When it comes back the kernel lets softirqs run
again, and the packet has waited that long. Nothing on the node needs to be changed for that, and
nothing can go wrong for longer: `may_goto` ends a loop after a quarter of a second by itself, and
eight of them in functions of their own make two seconds.

Run as a program, in a network namespace of its own: ``python -m tests.sources.bpf.hold CORE``.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from sexton.sources.bpf import syscalls
from sexton.sources.bpf.program import R0, R1, R2, R3, R6, Assembly, Operand, _Instruction

ROUNDS = 8
_CLASSIFIER, _TEST_RUN = 3, 10
_CLONE_REDIRECT = 13
_MAY_GOTO, _GOTO, _CALL = 0xE5, 0x05, 0x85
_A_FUNCTION = 1  # BPF_PSEUDO_CALL
_LOOPBACK, _INGRESS = 1, 1
_PACKET = bytes(12) + b"\x08\x00" + bytes(50)


def program_name(program: int) -> str:
    """The name a program was loaded under: `struct bpf_prog_info.name`."""
    answer = syscalls.information(program) or b""
    return answer[64:80].partition(b"\0")[0].decode("ascii", "replace")


def program() -> bytes:
    """Put the packet into the backlog, then go round for a quarter of a second, eight times."""
    code = Assembly().move(R6, Operand(R1))
    code.move(R2, _LOOPBACK).move(R3, _INGRESS).call(_CLONE_REDIRECT)
    for left in reversed(range(ROUNDS)):
        # Over the calls left and two instructions.
        code._put(_Instruction(_CALL, 0, _A_FUNCTION, 0, left + 2))
    code.move(R0, 0).exit()
    code._put(_Instruction(_MAY_GOTO, offset=1))._put(_Instruction(_GOTO, offset=-2))
    return code.move(R0, 0).exit().encode()


def load() -> int:
    code = ctypes.create_string_buffer(program())
    granted = ctypes.create_string_buffer(syscalls.LICENSE)
    size = len(program()) // 8
    addresses = ctypes.addressof(code), ctypes.addressof(granted)
    attributes = struct.pack("=IIQQIIQII16s", _CLASSIFIER, size, *addresses, *[0] * 5, b"hold")
    return syscalls.call(syscalls.PROG_LOAD, attributes)


def hold(program: int) -> float:
    """Run it; gives how long that took."""
    packet = ctypes.create_string_buffer(_PACKET, len(_PACKET))
    where = ctypes.addressof(packet)
    attributes = struct.pack("=IIIIQQII", program, 0, len(_PACKET), 0, where, 0, 1, 0)
    began = time.monotonic()
    syscalls.call(_TEST_RUN, attributes)
    return time.monotonic() - began


def raise_loopback() -> None:
    """In a new network namespace the loopback is down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        # SIOCSIFFLAGS: up, running
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 0x41))


class Hold:
    """A core that will be held on request."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def begin(self) -> None:
        self._child.stdin.write("hold\n")
        self._child.stdin.flush()

    def seconds(self) -> float:
        """How long it was held, once it is over."""
        return float(self._child.communicate(timeout=60)[0])


@contextlib.contextmanager
def held_core(core: int) -> Iterator[Hold]:
    """A child on that core, in a network namespace of its own, ready to hold it."""
    command = ["unshare", "-n", sys.executable, "-m", __name__, str(core)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        try:
            if child.stdout.readline() != "ready\n":
                pytest.skip(f"no may_goto in this kernel: {child.stderr.read()[-200:]}")
            yield Hold(child)
        finally:
            child.kill()


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[1])})
    raise_loopback()
    held = load()
    print("ready", flush=True)
    sys.stdin.readline()
    print(hold(held), flush=True)
