"""Kernel stacks of certain cores in certain seconds, and the cgroups of the processes in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, TypeVar

from sexton.detect.rows_read import remembered
from sexton.model.finding import Evidence
from sexton.model.rows.task import ProcessCgroup
from sexton.model.rows.trace import StackCount
from sexton.model.window import Window

T = TypeVar("T", int, tuple[int, int, str])
#: Stacks are counted by whole seconds: so much earlier or later still counts.
SLACK_S = 1.0


def on_cores(
    window: Window, cores: Collection[str], span: tuple[float, float]
) -> tuple[StackCount, ...]:
    """Stacks of those cores between two times (UNIX seconds)."""
    start, end = span[0] - SLACK_S, span[1] + SLACK_S
    inside = {second for second, wall in _seconds(window).items() if start <= wall <= end}
    rows = window.latest(StackCount) or ()
    return tuple(row for row in rows if row.second_mono in inside and str(row.cpu) in cores)


@remembered
def _seconds(window: Window) -> dict[int, float]:
    """The seconds in which stacks were taken, and the UNIX time of the middle of each."""
    seconds = {row.second_mono for row in window.latest(StackCount) or ()}
    return {second: window.wall(second + 0.5) for second in seconds}


def hottest(rows: Collection[StackCount]) -> tuple[str, float] | None:
    """The innermost function of most samples, and its share in percent."""
    functions: Counter[str] = Counter()
    for row in rows:
        functions[row.frames[0]] += row.samples
    if not functions:
        return None
    name, samples = functions.most_common(1)[0]
    return name, 100 * samples / functions.total()


class Caught(NamedTuple):
    """Samples of one family of functions; `of` has all kernel samples of each core in that time."""

    rows: tuple[StackCount, ...]
    of: Counter[int]

    @property
    def samples(self) -> int:
        return sum(row.samples for row in self.rows)

    @property
    def cores(self) -> Counter[int]:
        found: Counter[int] = Counter()
        for row in self.rows:
            found[row.cpu] += row.samples
        return found

    @property
    def threads(self) -> Counter[tuple[int, int, str]]:
        """By process, thread and name."""
        found: Counter[tuple[int, int, str]] = Counter()
        for row in self.rows:
            found[row.pid, row.tid, row.comm] += row.samples
        return found

    def share(self, core: int) -> float:
        """Their share of a core's kernel samples, in percent."""
        return 100 * self.cores[core] / self.of[core] if self.of[core] else 0.0

    def leading(self, least: float = 10.0, most: int = 8) -> list[tuple[int, int, str]]:
        """Threads with at least `least` percent of the samples, those with the most first."""
        return _leading(self.threads, least, most)

    def leading_cores(self, least: float = 10.0, most: int = 8) -> list[int]:
        """Cores with at least `least` percent of the samples, those with the most first."""
        return _leading(self.cores, least, most)

    def seconds_of(self, least: int) -> Counter[tuple[int, int, str]]:
        """By thread, the number of seconds in which it has at least `least` samples."""
        by_second: Counter[tuple[int, tuple[int, int, str]]] = Counter()
        for row in self.rows:
            by_second[row.second_mono, (row.pid, row.tid, row.comm)] += row.samples
        return Counter(who for (_, who), number in by_second.items() if number >= least)

    @property
    def span(self) -> tuple[float, float] | None:
        """From the first of these seconds to the end of the last (monotonic)."""
        if not self.rows:
            return None
        seconds = [row.second_mono for row in self.rows]
        return float(min(seconds)), float(max(seconds) + 1)

    def evidence(self, what: str, normal: str, wrong_if: str) -> Evidence:
        """How many of the kernel samples they are; `what` completes "kernel samples …"."""
        every = self.of.total()
        return Evidence(
            f"kernel samples {what}",
            f"{self.samples:,} of {every:,}",
            normal,
            "samples",
            "perf record",
            100 * self.samples / every if every else 0.0,
            wrong_if,
        )


def _leading(samples: Counter[T], least: float, most: int) -> list[T]:
    found = sorted(samples.items(), key=lambda pair: (-pair[1], pair[0]))
    return [key for key, number in found[:most] if 100 * number >= least * samples.total()]


def caught(
    window: Window,
    is_of: Callable[[tuple[str, ...]], bool],
    span: tuple[float, float] | None = None,
) -> Caught | None:
    """Samples of a family of functions between two times (monotonic seconds), or in the whole
    window; `None` if no stacks were taken."""
    rows = window.latest(StackCount)
    if rows is None:
        return None
    if span is not None:
        start, end = span[0] - SLACK_S, span[1]
        rows = tuple(row for row in rows if start < row.second_mono < end)
    every: Counter[int] = Counter()
    for row in rows:
        every[row.cpu] += row.samples
    return Caught(tuple(row for row in rows if is_of(row.frames)), every)


def thread_name(pid: int, tid: int, comm: str) -> str:
    """A thread's name in findings.

    >>> thread_name(2113, 2140, "kubelet"), thread_name(7, 7, "dd")
    ('kubelet[2113/2140]', 'dd[7]')
    """
    return f"{comm}[{pid}]" if pid == tid else f"{comm}[{pid}/{tid}]"


def cgroups_of(window: Window, pids: Iterable[int], mono_s: float) -> tuple[str, ...]:
    """Cgroups of these processes at that time, except the root."""
    known = cgroup_by_pid(window, mono_s)
    return tuple(dict.fromkeys(known[pid] for pid in pids if known.get(pid, "/") != "/"))


def cgroup_by_pid(window: Window, mono_s: float) -> dict[int, str]:
    """Cgroups of processes by the last reading before that time, else the first after it.

    Other readings are not used: the pid may belong to another process there.
    """
    batches = window.between(ProcessCgroup, mono_s, mono_s)
    before = [batch for batch in batches if batch.mono_s <= mono_s][-1:]
    after = [batch for batch in batches if batch.mono_s > mono_s][:1]
    known: dict[int, str] = {}
    for batch in (*after, *before):
        known |= {row.pid: row.path for row in batch.rows}
    return known
