"""A flood of small packets through a veth pair: how much recording slows it down.

Every packet raises NET_RX once on the sender's core, the worst case for a softirq probe. Sender and
receiver are pinned; the conditions take turns for several rounds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from bench.crowd import children
from bench.programs import find, traced
from bench.recorder import ours
from bench.recorder.account import EndedEarly, Program, account, running
from bench.recorder.plan import Plan
from bench.recorder.slowdown import in_child, recording, undisturbed
from bench.table import Measured, log, spread

_CLONE_NEWNET = 0x40000000
_PORT = 9
_ADDRESSES = ("192.0.2.1", "192.0.2.2")  # reserved for documentation, never routed
# A typical one-liner: every vector, every raise, a clock read each, the newest raise kept.
NAIVE = (
    "tracepoint:irq:softirq_raise { @raised[cpu, args->vec] = nsecs; } "
    "tracepoint:irq:softirq_entry /@raised[cpu, args->vec]/ "
    "{ @waited[args->vec] = hist(nsecs - @raised[cpu, args->vec]); "
    "delete(@raised[cpu, args->vec]); }"
)


@dataclass(frozen=True)
class Flooded:
    """Packets per second in each round of one condition, and with nothing before and after it."""

    name: str
    rates: tuple[float, ...]
    free: tuple[float, ...]

    def line(self) -> Measured:
        # Per round, because the machine's speed varies.
        ratios = [mine / free for mine, free in zip(self.rates, self.free, strict=True)]
        return Measured(
            f"packet flood, {self.name}",
            f"{spread([rate / 1000 for rate in self.rates], 0)} thousand packets a second, "
            f"{extra_ns(self.rates, self.free):+.0f} ns each",
            f"nothing running {spread([value / 1000 for value in self.free], 0)}",
            statistics.median(ratios),
            None,
            f"for comparison; rounds {min(ratios):.2f}–{max(ratios):.2f}",
        )


def extra_ns(rates: Sequence[float], free: Sequence[float]) -> float:
    """Extra nanoseconds per packet, the median over rounds.

    >>> extra_ns([100_000, 80_000, 50_000], [100_000, 100_000, 100_000])
    2500.0
    """
    pairs = zip(rates, free, strict=True)
    return statistics.median(1e9 / mine - 1e9 / nothing for mine, nothing in pairs)


def conditions(plan: Plan) -> dict[str, Callable[[], AbstractContextManager[object]]]:
    found: dict[str, Callable[[], AbstractContextManager[object]]] = {}
    if not ours.absent(plan.sexton):
        found["record, no probe, no ring"] = lambda: recording(plan.sexton, ours.PLAIN)
        found["record with its probe"] = lambda: recording(plan.sexton, ours.PROBE)
        found["record with probe and ring"] = lambda: recording(plan.sexton, ())
    bpftrace = find("bpftrace")
    if bpftrace:
        found["a naive bpftrace one-liner"] = lambda: _naive(bpftrace)
    return found


def flood(plan: Plan) -> list[Measured]:
    """Every condition in turn in each round, with nothing running before and after it."""
    taken: dict[str, list[tuple[float, float]]] = {}
    failed: dict[str, str] = {}
    with pair() as spaces:
        before = _packets(spaces, plan.flood_s)
        for _ in range(plan.rounds):
            for name, start in conditions(plan).items():
                try:
                    with start():
                        time.sleep(plan.settle_s)
                        during = _packets(spaces, plan.flood_s)
                except EndedEarly as early:
                    failed[name] = str(early)
                    continue
                after = _packets(spaces, plan.flood_s)
                taken.setdefault(name, []).append((during, statistics.fmean((before, after))))
                log(f"  packet flood under {name}: {during:,.0f} a second, {after:,.0f} after")
                before = after
    lines = [
        Flooded(name, *(tuple(column) for column in zip(*rounds, strict=True))).line()
        for name, rounds in taken.items()
    ]
    return lines + [
        Measured(f"packet flood, {name}", f"not run: {why}", "", None, None, "")
        for name, why in (reasons(plan) | failed).items()
        if why
    ]


def reasons(plan: Plan) -> dict[str, str]:
    """Why a condition was not measured."""
    bpftrace = "" if find("bpftrace") else "bpftrace is not installed: apt-get install bpftrace"
    return {"record": ours.absent(plan.sexton), "a naive bpftrace one-liner": bpftrace}


@contextmanager
def pair() -> Iterator[tuple[str, str]]:
    """Two temporary network namespaces joined by a veth pair."""
    ip = find("ip")
    if ip is None:
        raise RuntimeError("ip is not installed: apt-get install iproute2")
    names = tuple(f"sexton-bench-{os.getpid()}-{side}" for side in "ab")
    made = []
    try:
        for name in names:
            _ip(ip, "netns", "add", name)
            made.append(name)
        _ip(ip, *f"link add sxa netns {names[0]} type veth peer name sxb netns {names[1]}".split())
        for name, device, address in zip(names, ("sxa", "sxb"), _ADDRESSES, strict=True):
            _ip(ip, "-n", name, "addr", "add", f"{address}/30", "dev", device)
            _ip(ip, "-n", name, "link", "set", device, "up")
        yield names[0], names[1]
    finally:
        for name in made:
            subprocess.run([ip, "netns", "del", name], check=False, capture_output=True)


def _ip(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


@contextmanager
def _naive(bpftrace: str) -> Iterator[None]:
    with account() as held:
        argv = traced((bpftrace, "-q", "-e", NAIVE))
        with running(Program("bpftrace", argv, 600), held):
            yield


def _packets(spaces: tuple[str, str], seconds: float) -> float:
    """Packets per second sent on one core while another receives them."""
    cores = sorted(os.sched_getaffinity(0))
    with children(1, lambda: _receive(spaces[1], cores[0])):
        time.sleep(0.2)
        rate: float = in_child(lambda: _send(spaces[0], cores[-1], seconds))
    return rate


def _enter(space: str) -> None:
    with open(f"/run/netns/{space}") as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {space}")


def _send(space: str, core: int, seconds: float) -> float:
    _enter(space)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.connect((_ADDRESSES[1], _PORT))
        payload = bytes(64)

        def some() -> int:
            sent = 0
            # No listener yet, or a full queue: keep sending.
            with contextlib.suppress(ConnectionRefusedError, BlockingIOError):
                for _ in range(100):
                    out.send(payload)
                    sent += 1
            return sent

        # The mean, so that a probe that is on for one second in ten shows up.
        return statistics.fmean(undisturbed(some, core, seconds))


def _receive(space: str, core: int) -> None:
    os.sched_setaffinity(0, {core})
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    _enter(space)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind((_ADDRESSES[1], _PORT))
        buffer = bytearray(128)
        while True:
            listening.recv_into(buffer)
