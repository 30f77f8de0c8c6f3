"""Synthetic perf.data files with any number of cores, seconds and distinct stacks.

For captures that two real cores cannot produce: two minutes of 96 cores, captures that differ only
in size, a stall planted for a test to find. A test checks that ``perf script`` reads them. Kernel
functions come from a symbol table given by the caller; user functions are in a file that does not
exist; tasks, times and stacks are random.

The file has the layout of ``perf record -a -g --all-cgroups -k CLOCK_MONOTONIC``: header, event
attributes, records in rounds of a tenth of a second, and the clock reference.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_NS = 1_000_000_000
#: IP, TID, TIME, CALLCHAIN, ID, CPU, PERIOD, CGROUP: as requested by the recorder's perf.
_SAMPLE_TYPE = 0x2001E7
#: inherit, freq, mmap, comm, task, sample_id_all, mmap2, comm_exec, cgroup, build_id
_FLAGS = 1 << 1 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 13 | 1 << 18 | 1 << 23 | 1 << 24 | 1 << 32
_CPU_CLOCK = 0
_SOFTWARE = 1
_MMAP, _COMM, _SAMPLE, _CGROUP, _FINISHED_ROUND = 1, 3, 9, 19, 68
_KERNEL, _USER = 1, 2
_IN_KERNEL, _IN_USER = 2**64 - 128, 2**64 - 512
_PROGRAM = 0x5555_5555_0000
_PROGRAM_BYTES = 1 << 24
_ROUND_NS = _NS // 10
_CLOCK_DATA, _CLOCKID_MONOTONIC = 29, 1


class Stall(NamedTuple):
    """One task holds one core in one kernel path: function names, innermost first."""

    cpu: int
    start_s: float
    seconds: float
    comm: str
    functions: tuple[str, ...]


class Capture(NamedTuple):
    """Parameters of a capture. `busy` is the share of time that a core is not idle."""

    cores: int = 96
    seconds: float = 120.0
    hertz: int = 97
    stacks: int = 20_000
    depth: int = 24
    tasks: int = 400
    busy: float = 0.35
    stalls: tuple[Stall, ...] = ()
    start_s: float = 50_000.0
    wall_s: float = 1_750_000_000.0
    seed: int = 4


class _Stack(NamedTuple):
    task: int
    misc: int
    ip: int
    chain: bytes


def write_perf_data(path: Path, capture: Capture, kernel: Sequence[tuple[int, str]]) -> int:
    """Write it round by round; returns the number of samples.

    `kernel` is a symbol table: addresses and names. It must contain an idle function and those of
    the stalls; it should contain ``_text``, by which readers tell whether names are from the same
    boot.
    """
    chance = random.Random(capture.seed)
    named = {name: address for address, name in kernel}
    idle = next(named[name] for name in _IDLE if name in named)
    pool = [_stack(chance, capture, kernel) for _ in range(capture.stacks)]
    idle_stack = _Stack(-1, _KERNEL, idle + 4, struct.pack("=QQQ", 2, _IN_KERNEL, idle + 4))
    stalls = [
        (
            stall,
            _kernel_stack(capture.tasks + number, [named[name] + 8 for name in stall.functions]),
        )
        for number, stall in enumerate(capture.stalls)
    ]
    samples = 0
    with path.open("wb") as file:
        attributes = _attributes(capture.hertz)
        ids = struct.pack("=Q", 1)
        data_offset = 104 + len(ids) + len(attributes)
        file.write(bytes(104) + ids + attributes)
        text = named.get("_text") or named.get("_stext") or min(named.values())
        for piece in _introductions(capture, text):
            file.write(piece)
        for made, piece in _rounds(chance, capture, pool, (idle_stack, stalls)):
            samples += made
            file.write(piece)
        data_bytes = file.tell() - data_offset
        clock = struct.pack(
            "=IIQQ", 1, _CLOCKID_MONOTONIC, int(capture.wall_s * _NS), int(capture.start_s * _NS)
        )
        section = data_offset + data_bytes
        file.write(struct.pack("=QQ", section + 16, len(clock)) + clock)
        bits = bytearray(32)
        bits[_CLOCK_DATA // 8] = 1 << _CLOCK_DATA % 8
        file.seek(0)
        attrs = (104 + len(ids), len(attributes))
        file.write(
            struct.pack("=8s8Q", b"PERFILE2", 104, 144, *attrs, data_offset, data_bytes, 0, 0)
            + bytes(bits)
        )
    return samples


_IDLE = ("default_idle", "pv_native_safe_halt", "native_safe_halt", "acpi_safe_halt")


def _attributes(hertz: int) -> bytes:
    made = struct.pack(
        "=IIQQQQQ", _SOFTWARE, 128, _CPU_CLOCK, hertz, _SAMPLE_TYPE, 4, _FLAGS | 1 << 25
    )
    clockid = struct.pack("=i", _CLOCKID_MONOTONIC)
    made = made.ljust(88, b"\0") + bytes(4) + clockid
    return made.ljust(128, b"\0") + struct.pack("=QQ", 104, 8)


def _stack(chance: random.Random, capture: Capture, kernel: Sequence[tuple[int, str]]) -> _Stack:
    """Kernel functions on top of user functions, or only user functions."""
    task = chance.randrange(capture.tasks)
    depth = max(2, int(chance.gauss(capture.depth, capture.depth / 4)))
    inside = chance.randrange(depth) if chance.random() < 0.6 else 0
    above = [kernel[chance.randrange(len(kernel))][0] + 1 for _ in range(inside)]
    below = [_PROGRAM + chance.randrange(0, _PROGRAM_BYTES, 64) for _ in range(depth - inside)]
    chain = [*((_IN_KERNEL, *above) if above else ()), _IN_USER, *below]
    first = above[0] if above else below[0]
    misc = _KERNEL if above else _USER
    return _Stack(task, misc, first, struct.pack(f"={len(chain) + 1}Q", len(chain), *chain))


def _kernel_stack(task: int, addresses: Sequence[int]) -> _Stack:
    chain = (_IN_KERNEL, *addresses)
    packed = struct.pack(f"={len(chain) + 1}Q", len(chain), *chain)
    return _Stack(task, _KERNEL, addresses[0], packed)


def _pid(task: int) -> int:
    return 1000 + task if task >= 0 else 0


def _introductions(capture: Capture, text: int) -> Iterator[bytes]:
    """Records for the kernel's map, each task's name and program, each cgroup's path."""
    start_ns = int(capture.start_s * _NS)

    def record(kind: int, misc: int, body: bytes, pid: int) -> bytes:
        trailer = struct.pack("=IIQQII", pid, pid, start_ns, 1, 0, 0)
        return struct.pack("=IHH", kind, misc, 8 + len(body) + len(trailer)) + body + trailer

    def padded(name: str) -> bytes:
        encoded = name.encode() + b"\0"
        return encoded.ljust(-(-len(encoded) // 8) * 8, b"\0")

    span = struct.pack("=IIQQQ", 2**32 - 1, 0, text, 2**64 - 1 - text, text)
    yield record(_MMAP, _KERNEL, span + padded("[kernel.kallsyms]_text"), 0)
    for number in range(8):
        yield record(_CGROUP, 0, struct.pack("=Q", 100 + number) + padded(f"/made-up-{number}"), 0)
    names = [f"task-{number}" for number in range(capture.tasks)]
    for number, name in enumerate([*names, *(stall.comm for stall in capture.stalls)]):
        pid = _pid(number)
        yield record(_COMM, 0, struct.pack("=II", pid, pid) + padded(name[:15]), pid)
        program = struct.pack("=IIQQQ", pid, pid, _PROGRAM, _PROGRAM_BYTES, 0)
        yield record(_MMAP, _USER, program + padded(f"/made-up/program-{number % 20}"), pid)


def _rounds(
    chance: random.Random,
    capture: Capture,
    pool: Sequence[_Stack],
    special: tuple[_Stack, Sequence[tuple[Stall, _Stack]]],
) -> Iterator[tuple[int, bytes]]:
    """Samples per tenth of a second, core by core, as perf drains its buffers."""
    idle, stalls = special
    period = _NS // capture.hertz
    start, end = int(capture.start_s * _NS), int((capture.start_s + capture.seconds) * _NS)
    held = [
        (stall.cpu, start + int(stall.start_s * _NS), int(stall.seconds * _NS), stack)
        for stall, stack in stalls
    ]
    due = [start + chance.randrange(period) for _ in range(capture.cores)]
    fresh = iter(pool)  # each at least once, as long as there are samples
    head, fields = struct.Struct("=IHHQIIQQIIQ"), struct.Struct("=Q")
    closing = struct.pack("=IHH", _FINISHED_ROUND, 0, 8)
    for begin in range(start, end, _ROUND_NS):
        until = min(begin + _ROUND_NS, end)
        made, chunks = 0, []
        for cpu in range(capture.cores):
            now = due[cpu]
            while now < until:
                for core, since, length, stalled in held:
                    if core == cpu and since <= now < since + length:
                        stack = stalled
                        break
                else:
                    stack = idle
                    if chance.random() < capture.busy:
                        stack = next(fresh, None) or pool[int(chance.random() * len(pool))]
                pid = _pid(stack.task)
                size = 64 + len(stack.chain)
                chunks.append(
                    head.pack(
                        *(_SAMPLE, stack.misc, size, stack.ip, pid, pid),
                        *(now + chance.randrange(2000), 1, cpu, 0, period),
                    )
                )
                chunks += (stack.chain, fields.pack(100 + pid % 8))
                made += 1
                now += period
            due[cpu] = now
        chunks.append(closing)
        yield made, b"".join(chunks)
