"""A perf.data made by hand: a node of eight cores on which something happened at 02:14:07.

Two minutes at 49 Hz with the wall clock kept. Cores idle and work a little; a job runs on core 2
every ten seconds; for 4.8 seconds from 67.32 s on, kubelet holds core 5 in the kernel, and the
softirq work of that core waits and then floods it. Kernel names are in a kallsyms beside it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

CORES, SECONDS, HERTZ = 8, 120, 49
START_NS = 5_000_000_000_000
#: 2026-11-15 02:13:00 UTC.
WALL_NS = 1_794_708_780 * 10**9
ONSET_S, LASTS_S, CORE = 67.32, 4.8, 5
_TEXT = 0xFFFFFFFF81000000
_PYTHON = 0x400000
_KERNEL = [
    "_text",
    "entry_SYSCALL_64_after_hwframe",
    "do_syscall_64",
    "ksys_read",
    "vfs_read",
    "seq_read_iter",
    "memcg_stat_show",
    "mem_cgroup_flush_stats",
    "cgroup_rstat_flush",
    "cgroup_rstat_flush_locked",
    "mem_cgroup_css_rstat_flush",
    "_raw_spin_lock_irq",
    "asm_sysvec_apic_timer_interrupt",
    "irq_exit_rcu",
    "__do_softirq",
    "net_rx_action",
    "__napi_poll",
    "ena_io_poll",
    "ret_from_fork",
    "kthread",
    "smpboot_thread_fn",
    "run_ksoftirqd",
    "secondary_startup_64_no_verify",
    "start_secondary",
    "cpu_startup_entry",
    "do_idle",
    "cpuidle_idle_call",
    "default_idle_call",
    "default_idle",
    "ext4_file_read_iter",
    "copy_page_to_iter",
    "do_writev",
    "tcp_sendmsg",
    "tcp_write_xmit",
]
_AT = {name: _TEXT + 0x1000 * place for place, name in enumerate(_KERNEL)}
_READ = "entry_SYSCALL_64_after_hwframe do_syscall_64 ksys_read vfs_read"
_IDLE = (
    "secondary_startup_64_no_verify start_secondary cpu_startup_entry do_idle "
    "cpuidle_idle_call default_idle_call default_idle"
)
_FLUSH = (
    f"{_READ} seq_read_iter memcg_stat_show mem_cgroup_flush_stats cgroup_rstat_flush "
    "cgroup_rstat_flush_locked mem_cgroup_css_rstat_flush"
)
_NAPI = (
    "ret_from_fork kthread smpboot_thread_fn run_ksoftirqd __do_softirq net_rx_action "
    "__napi_poll ena_io_poll"
)
_SEND = "entry_SYSCALL_64_after_hwframe do_syscall_64 do_writev tcp_sendmsg tcp_write_xmit"
_TASKS = {"swapper": 0, "kubelet": 2113, "python3": 4100, "ksoftirqd/5": 38, "logrotate": 900}


def made_capture(folder: Path) -> tuple[Path, Path]:
    """Write it; the capture and its kallsyms."""
    kallsyms = folder / "kallsyms"
    kallsyms.write_text("".join(f"{at:016x} T {name}\n" for name, at in _AT.items()))
    capture = folder / "perf.data"
    capture.write_bytes(_file(b"".join(_records())))
    return capture, kallsyms


def _records() -> Iterator[bytes]:
    length = 0x1000 * len(_KERNEL)
    name = b"[kernel.kallsyms]_text\0\0"
    yield _side(1, 1, struct.pack("<iIQQQ", -1, 0, _TEXT, length, _TEXT) + name)
    for comm, pid in _TASKS.items():
        yield _side(3, 0, struct.pack("<ii", pid, pid) + comm.encode().ljust(16, b"\0"))
    program = b"/usr/bin/python3".ljust(24, b"\0")
    yield _side(1, 2, struct.pack("<iIQQQ", 4100, 4100, _PYTHON, 0x100000, 0) + program)
    chance = random.Random(7)
    for step in range(SECONDS * HERTZ):
        second = step / HERTZ
        for core in range(CORES):
            task, stack, user = _ran(chance, second, core)
            yield _sample(START_NS + int(second * 1e9) + core * 1000, core, task, (stack, user))


def _ran(chance: random.Random, second: float, core: int) -> tuple[str, str, bool]:
    """Who was on a core, in which kernel functions, and whether called from a program."""
    bad = second - ONSET_S
    if core == CORE and 0 <= bad < LASTS_S:
        if chance.random() < 0.97:
            return "kubelet", _FLUSH + " _raw_spin_lock_irq" * (chance.random() < 0.15), True
        return "ksoftirqd/5", _NAPI, False
    if core == CORE and LASTS_S <= bad < LASTS_S + 0.6:
        return "ksoftirqd/5", _NAPI, False
    if core == 2 and second % 10 < 0.8:
        return "logrotate", f"{_READ} ext4_file_read_iter copy_page_to_iter", True
    if chance.random() < 0.12 + 0.02 * (core % 3):
        return chance.choice(
            [
                ("python3", "", True),
                ("python3", "", True),
                ("python3", _SEND, True),
                ("kubelet", f"{_READ} seq_read_iter", True),
                (
                    "swapper",
                    f"{_IDLE} asm_sysvec_apic_timer_interrupt irq_exit_rcu __do_softirq",
                    False,
                ),
            ]
        )
    return "swapper", _IDLE, False


def _sample(time_ns: int, core: int, task: str, ran: tuple[str, bool]) -> bytes:
    stack, user = ran
    kernel = [_AT[name] + 8 for name in reversed(stack.split())]
    mode_user = [(1 << 64) - 512, _PYTHON + 0x1234, _PYTHON + 0x88] if user else []
    chain = [*([(1 << 64) - 128, *kernel] if kernel else []), *mode_user]
    first = kernel[0] if kernel else _PYTHON + 0x1234
    pid = _TASKS[task]
    tid = pid or 0
    body = struct.pack("<QIIQII", first, pid, tid, time_ns, core, 0)
    body += struct.pack(f"<Q{len(chain)}Q", len(chain), *chain)
    return _record(9, 1 if kernel else 2, body)


def _side(kind: int, misc: int, body: bytes) -> bytes:
    """A record that is no sample, with the trailer that says who, when and where."""
    return _record(kind, misc, body + struct.pack("<IIQII", 0, 0, 0, 0, 0))


def _record(kind: int, misc: int, body: bytes) -> bytes:
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def _file(data: bytes) -> bytes:
    attr = bytearray(128)
    struct.pack_into("<IIQQQQ", attr, 0, 1, 128, 0, HERTZ, 0xA7, 0)
    struct.pack_into("<Q", attr, 40, 1 << 8 | 1 << 9 | 1 << 10 | 1 << 18 | 1 << 25)
    struct.pack_into("<i", attr, 92, 1)
    features = {
        3: _text("node-7"),
        4: _text("5.4.0-1103-aws"),
        7: struct.pack("<II", CORES, CORES),
        11: struct.pack("<I", 3) + _text("perf") + _text("record") + _text("-a"),
        23: struct.pack("<Q", 1),
        29: struct.pack("<IIQQ", 1, 1, WALL_NS, START_NS),
    }
    start = 104 + 144
    bits = bytearray(32)
    table, bodies = b"", b""
    at = start + len(data) + 16 * len(features)
    for bit, body in sorted(features.items()):
        bits[bit // 8] |= 1 << bit % 8
        table += struct.pack("<QQ", at + len(bodies), len(body))
        bodies += body
    head = b"PERFILE2" + struct.pack("<QQ", 104, 144)
    head += struct.pack("<QQQQQQ", 104, 144, start, len(data), 0, 0) + bytes(bits)
    return head + bytes(attr) + struct.pack("<QQ", 0, 0) + data + table + bodies


def _text(value: str) -> bytes:
    padded = value.encode() + b"\0" * (64 - len(value))
    return struct.pack("<I", len(padded)) + padded
