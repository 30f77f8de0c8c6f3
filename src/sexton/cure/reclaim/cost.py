"""What reclaim costs: CPU time estimated before, and reads of the statistics timed around it.

The estimate uses the count and two costs, both measured on real zombies (Linux 6.18, memory on v1,
one page each): 3,000 held by clean page cache took 0.13 s to free; 20,000 held by tmpfs, which
cannot be reclaimed, took 4.4 s without freeing any. The latter is sixteen futile tries
(MAX_RECLAIM_RETRIES), and the kernel checks for signals only between two tries: one sixteenth of
it is the longest uninterruptible step. Machines differ by some factor; the first round measures
this one, and the rounds stop by its clock.

If zombies slow down the walk over all cgroups, freeing them makes each read of the parent's
statistics faster by some microseconds per zombie: a test that can fail. On kernels whose statistics
do not walk (since about 5.8) the reads stay flat, and the walk that hurts is reclaim's own, which
the time per round measures. A read that walks many zombies is itself the outage, so it is
estimated first (`sexton.sources.cgroupfs.estimate`); over budget only the estimate is reported.
Reads run in a child with a deadline, off the NIC's cores; the fastest of three counts.

>>> found = cost_of(20_000, stall_s=0.5)
>>> f"{found.least_s:.2f} {found.most_s:.2f} {found.hold_s:.3f}"
'0.87 3.19 0.275'
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import NamedTuple

from sexton.cure.reclaim.collateral import Collateral
from sexton.cure.reclaim.count import Parent
from sexton.errors import SourceError
from sexton.host.host import ONLY_LIVE, Host
from sexton.host.runner import run
from sexton.model.text import seconds
from sexton.sources.cgroupfs.estimate import FILES, Estimate, estimates
from sexton.sources.cores import off_the_nic

#: Per zombie that can be freed; per zombie that cannot, for one whole futile write.
FREED_US = 43.3
STUCK_US = 220.0
TRIES = 16
#: Futile passes in a row before reclaim gives up.
FUTILE_PASSES = 3
#: How long a write may go on without freeing any before it is stopped.
STALL_S = 1.0
#: Estimated cost up to which a file is read: 1/25 of the NIC watchdog's 5 s, or 1/100 if every
#: core serves the NIC.
MOST_S = 0.2
MOST_ON_NIC_S = 0.05
#: Less than this is clock jitter: a walk takes tens of microseconds per zombie.
FLAT_US = 0.5
JITTER_S = 0.001
_DEADLINE_S = 3.0
_CHILD = """
import os, sys, time
for path in sys.argv[2:]:
    best = None
    try:
        for _ in range(3):
            here = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            began = time.perf_counter()
            while os.read(here, 1 << 18):
                pass
            spent = time.perf_counter() - began
            os.close(here)
            best = spent if best is None else min(best, spent)
            if spent > float(sys.argv[1]) / 3:
                break
    except OSError:
        pass
    print(-1 if best is None else best)
"""


class CostEstimate(NamedTuple):
    """Seconds of one core: if all can be freed; the maximum (some are freed first, the rest cannot
    be); and the longest uninterruptible step. All are `None` if the number of zombies is."""

    dying: int | None
    least_s: float | None
    most_s: float | None
    hold_s: float | None

    @property
    def sentence(self) -> str:
        """For the plan."""
        if self.dying is None or self.least_s is None or self.most_s is None or not self.hold_s:
            return "duration unknown: the number of dying cgroups is unknown"
        return (
            f"one core for about {seconds(self.least_s)} if all {self.dying:,} can be freed,"
            f" at most {seconds(self.most_s)}; longest uninterruptible step: {seconds(self.hold_s)}"
        )


def estimate_cost(found: Collateral, stall_s: float = STALL_S) -> CostEstimate:
    """Cost of freeing below that parent. On v1 the count is the node's: an upper bound."""
    number = found.dying.number
    if number is None:
        return CostEstimate(None, None, None, None)
    return cost_of(number, stall_s)


def cost_of(number: int, stall_s: float = STALL_S) -> CostEstimate:
    """Cost of freeing `number` dying cgroups."""
    hold_s = number * STUCK_US / TRIES / 1e6
    whole_s = number * STUCK_US / 1e6
    stuck_s = FUTILE_PASSES * min(whole_s, stall_s + hold_s)
    least_s = number * FREED_US / 1e6
    return CostEstimate(number, least_s, least_s + stuck_s, hold_s)


class StatRead(NamedTuple):
    """Seconds of one read of `file` at the parent. If `measured` is false it was too expensive and
    `seconds` is an estimate for the whole node, or `None` if unknown (`note`)."""

    file: str
    seconds: float | None
    measured: bool
    note: str = ""


def time_stat_reads(host: Host, parent: Parent) -> tuple[StatRead, ...]:
    """One `StatRead` per statistics file."""
    if not host.live:
        return tuple(StatRead(file, None, False, f"not read: {ONLY_LIVE}") for file in FILES)
    fresh = replace(host, memo={})  # no cached timings from before the round
    try:
        guesses = {estimate.file: estimate for estimate in estimates(fresh, parent.layout)}
    except SourceError as error:
        return tuple(StatRead(file, None, False, f"not read: {error.detail}") for file in FILES)
    cores = off_the_nic(fresh)
    budget_s = MOST_ON_NIC_S if cores.cpus is None else MOST_S
    cheap = [file for file in FILES if file in guesses and guesses[file].most_s <= budget_s]
    timed = _read(parent, cheap, budget_s, cores.cpus)
    return tuple(_stat_read(file, guesses.get(file), timed.get(file)) for file in FILES)


def _stat_read(file: str, guess: Estimate | None, spent_s: float | None) -> StatRead:
    if spent_s is not None:
        return StatRead(file, spent_s, True)
    if guess is None:
        return StatRead(file, None, False, "not read: file missing, or not timed")
    note = f"not read: estimated {seconds(guess.estimate_s)}, which would stall the node"
    return StatRead(file, guess.estimate_s, False, note)


def _read(
    parent: Parent, files: list[str], budget_s: float, cpus: frozenset[int] | None
) -> dict[str, float]:
    if not files:
        return {}
    paths = [f"{parent.directory}/{file}" for file in files]
    argv = (sys.executable, "-I", "-S", "-c", _CHILD, str(budget_s), *paths)
    try:
        ended = run(argv, _DEADLINE_S, limit=4096, cpus=cpus)
        spent = [float(line) for line in ended.output.split()]
    except (SourceError, ValueError):
        return {}
    return {file: value for file, value in zip(files, spent, strict=False) if value >= 0}


def us_saved_per_zombie(
    before: tuple[StatRead, ...], after: tuple[StatRead, ...], freed: int
) -> dict[str, float]:
    """Microseconds saved per read and zombie freed, for files measured twice.

    >>> slow, fast = StatRead("memory.stat", 0.7, True), StatRead("memory.stat", 0.0, True)
    >>> us_saved_per_zombie((slow,), (fast,), 10_000)
    {'memory.stat': 70.0}
    """
    if freed <= 0:
        return {}
    later = {read.file: read.seconds for read in after if read.measured}
    return {
        read.file: (read.seconds - last) * 1e6 / freed
        for read in before
        if read.measured and read.seconds is not None and (last := later.get(read.file)) is not None
    }


def describe_reads(before: StatRead, after: StatRead, us_per_zombie: float | None) -> str:
    """One sentence on how read times changed.

    >>> file = "memory.numa_stat"
    >>> describe_reads(StatRead(file, 0.7, True), StatRead(file, 0.002, True), 69.8)
    'one read of memory.numa_stat: 700 ms before, 2.0 ms after, 69.8 µs saved per zombie'
    >>> describe_reads(StatRead(file, 2e-5, True), StatRead(file, 1.9e-5, True), 0.001)
    'one read of memory.numa_stat: 20 µs before, 19 µs after: unaffected by zombies'
    """
    if before.seconds is None or after.seconds is None:
        return f"{before.file}: {before.note or after.note}"
    times = f"{_spent(before)} before, {_spent(after)} after"
    if us_per_zombie is None:
        return f"one read of {before.file}: {times}"
    if abs(us_per_zombie) < FLAT_US or abs(before.seconds - after.seconds) < JITTER_S:
        return f"one read of {before.file}: {times}: unaffected by zombies"
    return f"one read of {before.file}: {times}, {us_per_zombie:.1f} µs saved per zombie"


def _spent(walk: StatRead) -> str:
    return seconds(walk.seconds or 0.0) + ("" if walk.measured else " (estimate)")
