"""Kernel work in interrupts for a recorder: fixed work on a pinned core, with and without it.

perf's samples and BPF on tracepoints are charged to the interrupted task, so the recorder's own
account does not show them. The recorder's processes are pinned to other cores than the work, so
that only kernel work on the work's core counts. Each condition runs between two rounds of nothing
and is compared with those, because the machine's speed varies.

On a shared machine it varies by several percent, much more than samples cost. So the cost of a
sample is also measured separately: the recorder's perf command at a hundred times its rate, where
the loss exceeds the noise, divided by a hundred.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import resource
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.recorder import ours
from bench.recorder.account import EndedEarly, Program, account, running, size_of
from bench.recorder.plan import Plan
from bench.table import log, spread
from sexton.record.perf_child import flags

_PIECE_S = 0.02
HERTZ = ours.HERTZ
_TIMES = 100
_LEAST_BYTES = 50  # per sample; less means that perf was not running yet, or lost samples
CONDITIONS = {"stacks": ours.STACKS, "full": ours.FULL}


@dataclass(frozen=True)
class Slowdown:
    """Percent by which a condition slows fixed work down, once per round."""

    name: str
    percents: tuple[float, ...]

    @property
    def percent(self) -> float:
        return statistics.median(self.percents)

    def text(self) -> str:
        return f"{spread(self.percents)} %"


def slowdowns(plan: Plan) -> dict[str, Slowdown]:
    """One entry per condition, and `nothing`: the difference between two rounds of nothing."""
    beside, core = cores()
    percents: dict[str, list[float]] = {
        "nothing": [],
        **{condition: [] for condition in CONDITIONS},
    }
    before = in_child(lambda: rate(core, plan.slice_s))
    for _ in range(plan.rounds):
        for name, chosen in CONDITIONS.items():
            with recording(plan.sexton, chosen, beside):
                time.sleep(plan.settle_s)
                during = in_child(lambda: rate(core, plan.slice_s))
            after = in_child(lambda: rate(core, plan.slice_s))
            percents[name].append(slower(during, (before, after)))
            percents["nothing"].append(slower(after, (before,)))
            log(f"  fixed work under {name}: {percents[name][-1]:+.2f} % slower")
            before = after
    return {name: Slowdown(name, tuple(percent)) for name, percent in percents.items()}


def sampling(plan: Plan) -> Slowdown:
    """Percent of a busy core that the recorder's samples cost, measured at a multiple of its
    rate."""
    beside, core = cores()
    percents = []
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch:
        command = flags(HERTZ * _TIMES, 600, 2, scratch)
        program = Program(
            "perf record",
            ("nice", "-n", "-20", *command, "-o", f"{scratch}/perf.data"),
            600,
            cores=beside,
        )
        before = in_child(lambda: rate(core, plan.slice_s))
        for _ in range(2 * plan.rounds + 1):
            with account() as held, running(program, held):
                time.sleep(plan.settle_s)
                size = size_of(Path(scratch))
                during = in_child(lambda: rate(core, plan.slice_s))
                grown = size_of(Path(scratch)) - size
            enough = grown >= _LEAST_BYTES * HERTZ * _TIMES * plan.slice_s
            after = in_child(lambda: rate(core, plan.slice_s))
            if enough:
                percents.append(slower(during, (before, after)) / _TIMES)
                log(f"  samples at {HERTZ} Hz: {percents[-1]:.3f} % of a busy core")
            else:
                log(f"  samples at {HERTZ} Hz: perf wrote only {grown:,} bytes, not counted")
            before = after
    if not percents:
        raise EndedEarly("perf took too few samples on this busy machine")
    return Slowdown("sampling", tuple(percents))


def cores() -> tuple[frozenset[int], int]:
    """The cores for the recorder, and the core for the work."""
    ordered = sorted(os.sched_getaffinity(0))
    return frozenset(ordered[:-1] or ordered), ordered[-1]


def slower(during: float, around: tuple[float, ...]) -> float:
    """Percent by which a rate fell below the mean of those around it.

    >>> slower(75, (50, 150))
    25.0
    """
    return 100 * (1 - during / statistics.fmean(around))


@contextmanager
def recording(
    sexton: str, flags: tuple[str, ...], cores: frozenset[int] | None = None
) -> Iterator[None]:
    """Sexton's recorder, running until the block ends."""
    with tempfile.TemporaryDirectory(prefix="sexton-bench-") as scratch, account() as held:
        argv = ours.argv(sexton, Path(scratch) / "ours", 600, flags)
        with running(Program("sexton record", argv, 600, cores=cores), held):
            yield


def rate(core: int, seconds: float) -> float:
    """Pieces of fixed work per second on a core."""
    block = bytes(4096)

    def work() -> int:
        for _ in range(10):
            hashlib.sha256(block).digest()
        return 10

    return statistics.median(undisturbed(work, core, seconds))


def undisturbed(work: Callable[[], int], core: int, seconds: float) -> list[float]:
    """Work per second, for each slice in which nothing else ran on the core."""
    os.sched_setaffinity(0, {core})
    os.setpriority(os.PRIO_PROCESS, 0, -20)  # everything else here waits
    alone, rates = [], []
    until = time.perf_counter() + seconds
    switched = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    while (began := time.perf_counter()) < until:
        done = 0
        while (spent := time.perf_counter() - began) < _PIECE_S:
            done += work()
        rates.append(done / spent)
        before, switched = switched, resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        if switched == before:
            alone.append(rates[-1])
    return alone if len(alone) > len(rates) / 4 else rates


def in_child(work: Callable[[], Any]) -> Any:
    """Do the work in a forked child, so that its settings end with it; returns its result."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writing, "wb") as reader:
                pickle.dump(work(), reader)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as reader:
        given = reader.read()
    os.waitpid(child, 0)
    if not given:
        raise RuntimeError("the measuring child failed")
    return pickle.loads(given)
