"""Which processes took the page faults of a stretch of time, by their own counters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from sexton.model.finding import Finding
from sexton.model.task import Process
from sexton.model.window import Batch, Window
from sexton.series.steps import delta

#: Processes are read every two seconds live and every ten in a recording.
AROUND_S = 10.5


class Faulting(NamedTuple):
    """A process and its page faults while it was watched, of both kinds."""

    pid: int
    comm: str
    minor: int
    major: int

    @property
    def name(self) -> str:
        return f"{self.comm}[{self.pid}]"


class Tally(NamedTuple):
    """Every process that faulted, and the seconds over which they were watched."""

    processes: Sequence[Faulting]
    start: float
    end: float


def tally(window: Window, span: tuple[float, float]) -> Tally | None:
    """By the readings of processes around a span; `None` where there are not two of them.

    A process that was born meanwhile took all it has; one that ended is not known any more.
    """
    read = _around(window.between(Process, span[0] - AROUND_S, span[1] + AROUND_S), span)
    if len(read) < 2:
        return None
    minor: dict[tuple[int, int], int] = {}
    major: dict[tuple[int, int], int] = {}
    names: dict[tuple[int, int], str] = {}
    for before, after in pairwise(read):
        known = {(row.pid, row.start_ms): row for row in before.rows}
        for row in after.rows:
            key = (row.pid, row.start_ms)
            was = known.get(key)
            if was is None and row.start_ms / 1000 < before.mono_s - 1:
                continue  # it was hidden or missed; since when it counts cannot be told
            small = delta(0 if was is None else was.minor_faults, row.minor_faults)
            large = delta(0 if was is None else was.major_faults, row.major_faults)
            if small or large:
                minor[key] = minor.get(key, 0) + (small or 0)
                major[key] = major.get(key, 0) + (large or 0)
                names[key] = row.comm
    made = [Faulting(key[0], names[key], minor[key], major[key]) for key in names]
    return Tally(made, read[0].mono_s, read[-1].mono_s)


def holder(window: Window, held: Finding, least: float) -> tuple[Faulting, Tally] | None:
    """The process that held a core and took so many minor faults a second meanwhile, if any did."""
    if held.start is None or held.end is None:
        return None
    since = window.start_mono - window.start
    counted = tally(window, (held.start + since, held.end + since))
    if counted is None:
        return None
    threads = [name.rpartition("[")[2] for name in held.entities.get("task", ())]
    pids = {each.partition("/")[0].rstrip("]") for each in threads}
    enough = least * (counted.end - counted.start)
    mine = [each for each in counted.processes if str(each.pid) in pids and each.minor >= enough]
    return (max(mine, key=lambda each: each.minor), counted) if mine else None


def _around(
    batches: Sequence[Batch[Process]], span: tuple[float, float]
) -> Sequence[Batch[Process]]:
    """From the last reading before it to the first after it, and those between."""
    near = [each for each in batches if span[0] - AROUND_S <= each.mono_s <= span[1] + AROUND_S]
    before = [each.mono_s for each in near if each.mono_s <= span[0]]
    after = [each.mono_s for each in near if each.mono_s >= span[1]]
    start = before[-1] if before else span[0]
    end = after[0] if after else span[1]
    return [each for each in near if start <= each.mono_s <= end]
