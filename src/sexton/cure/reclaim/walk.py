"""The walk, timed: what one read of the parent's statistics costs, before and after a round.

If the zombies are what makes the walk slow, then freeing them makes it quicker, by so many
microseconds for each: that is the experiment, and it can fail. On kernels whose statistics do not
walk (since 5.8, about) it does: the reads stay flat, and the walk that hurts there is reclaim's
own, which each round's seconds are a measure of.

The read *is* the outage where it walks far, so it is estimated first, as ever
(`sexton.sources.cgroupfs.estimate`); above the budget the estimate is told and nothing is read.
Read by a child with a deadline, off the NIC's cores, the quickest of three.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import NamedTuple

from sexton.cure.reclaim.count import Parent
from sexton.errors import SourceError
from sexton.host.host import ONLY_LIVE, Host
from sexton.host.runner import run
from sexton.model.text import seconds
from sexton.sources.cgroupfs.estimate import FILES, Estimate, estimates
from sexton.sources.cores import off_the_nic

#: What one read may cost by estimate: a twenty-fifth of the NIC watchdog's 5 s, or a hundredth
#: where every core serves the NIC.
MOST_S = 0.2
MOST_ON_NIC_S = 0.05
#: Less than this is the clock's jitter: a walk spends tens of microseconds on each.
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


class Walk(NamedTuple):
    """Seconds of one read of `file` at the parent. `measured` is false where that was too dear, and
    `seconds` then an estimate for the whole node; `None` where nothing could be told (`note`)."""

    file: str
    seconds: float | None
    measured: bool
    note: str = ""


def time_walk(host: Host, parent: Parent) -> tuple[Walk, ...]:
    """One `Walk` per file of statistics."""
    if not host.live:
        return tuple(Walk(file, None, False, f"not read: {ONLY_LIVE}") for file in FILES)
    fresh = replace(host, memo={})  # timings of a minute ago are of before the round
    try:
        guesses = {each.file: each for each in estimates(fresh, parent.layout)}
    except SourceError as error:
        return tuple(Walk(file, None, False, f"not read: {error.detail}") for file in FILES)
    cores = off_the_nic(fresh)
    budget_s = MOST_ON_NIC_S if cores.cpus is None else MOST_S
    cheap = [file for file in FILES if file in guesses and guesses[file].most_s <= budget_s]
    told = _read(parent, cheap, budget_s, cores.cpus)
    return tuple(_walk(file, guesses.get(file), told.get(file)) for file in FILES)


def _walk(file: str, guess: Estimate | None, spent_s: float | None) -> Walk:
    if spent_s is not None:
        return Walk(file, spent_s, True)
    if guess is None:
        return Walk(file, None, False, "not read: no cgroup has it, or it could not be timed")
    note = f"not read: about {seconds(guess.estimate_s)} by estimate; that would be the stall"
    return Walk(file, guess.estimate_s, False, note)


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
    return {file: each for file, each in zip(files, spent, strict=False) if each >= 0}


def slope_us(before: tuple[Walk, ...], after: tuple[Walk, ...], freed: int) -> dict[str, float]:
    """Microseconds by which one read got quicker, per zombie freed, for files measured twice.

    >>> slope_us((Walk("memory.stat", 0.7, True),), (Walk("memory.stat", 0.0, True),), 10_000)
    {'memory.stat': 70.0}
    """
    if freed <= 0:
        return {}
    later = {each.file: each.seconds for each in after if each.measured}
    return {
        each.file: (each.seconds - last) * 1e6 / freed
        for each in before
        if each.measured and each.seconds is not None and (last := later.get(each.file)) is not None
    }


def told(before: Walk, after: Walk, us_each: float | None) -> str:
    """The experiment in words.

    >>> told(Walk("memory.numa_stat", 0.7, True), Walk("memory.numa_stat", 0.002, True), 69.8)
    'one read of memory.numa_stat: 700 ms before, 2.0 ms after, 69.8 µs for each zombie freed'
    >>> told(Walk("memory.stat", 2e-5, True), Walk("memory.stat", 1.9e-5, True), 0.001)
    'one read of memory.stat: 20 µs before, 19 µs after: here it does not walk the dead'
    """
    if before.seconds is None or after.seconds is None:
        return f"{before.file}: {before.note or after.note}"
    times = f"{_spent(before)} before, {_spent(after)} after"
    if us_each is None:
        return f"one read of {before.file}: {times}"
    if abs(us_each) < FLAT_US or abs(before.seconds - after.seconds) < JITTER_S:
        return f"one read of {before.file}: {times}: here it does not walk the dead"
    return f"one read of {before.file}: {times}, {us_each:.1f} µs for each zombie freed"


def _spent(walk: Walk) -> str:
    return seconds(walk.seconds or 0.0) + ("" if walk.measured else " by estimate")
