"""A made-up machine's memory, second by second, for tests of what is said about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.trace import StackCount
from sexton.model.window import Window
from tests.support.windows import make_window

#: As 6.18 counts; what a test moves comes on top.
VMSTAT = {
    "nr_free_pages": 90_000,
    "pgfault": 5_000_000,
    "pgmajfault": 900,
    "pgscan_kswapd": 70_000,
    "pgscan_direct": 40,
    "pgscan_direct_throttle": 3,
    "pgscan_khugepaged": 0,
    "pgscan_proactive": 0,
    "pgscan_anon": 10_000,
    "pgscan_file": 90_000,
    "pgsteal_kswapd": 60_000,
    "pgsteal_direct": 30,
    "pgsteal_khugepaged": 0,
    "pgsteal_proactive": 0,
    "pgsteal_anon": 9_000,
    "pgsteal_file": 80_000,
    "allocstall_normal": 2,
    "workingset_refault_file": 30,
    "pswpin": 0,
    "oom_kill": 0,
    "thp_fault_alloc": 12,
}
RECLAIM = ("shrink_lruvec", "shrink_node", "do_try_to_free_pages", "try_to_free_mem_cgroup_pages")
KSWAPD = ("shrink_lruvec", "shrink_node", "balance_pgdat", "kswapd")
FAULT = ("clear_page_erms", "do_anonymous_page", "handle_mm_fault", "asm_exc_page_fault")
FLUSH = ("css_rstat_flush", "mem_cgroup_flush_stats", "memory_stat_show")
SPIN = ("native_queued_spin_lock_slowpath", "__css_rstat_lock", "css_rstat_flush")


class Machine:
    """Counters that go on; each second is told what moved in it."""

    def __init__(self, counters: Mapping[str, int] = VMSTAT, cores: int = 0) -> None:
        self.counters = Counter(counters)
        self.some_us = self.full_us = 1_000_000
        self.cores = [[50_000, 50_000, 900_000] for _ in range(cores)]
        self.at = 0.0
        self.readings: list[tuple[float, list[Row]]] = [(0.0, self.rows())]

    def second(
        self,
        some: float = 0.0,
        full: float = 0.0,
        kernel: Sequence[float] = (),
        seconds: float = 1.0,
        **moved: float,
    ) -> Machine:
        """A second later: pressure and cores in per cent, counters a second."""
        self.at += seconds
        self.some_us += int(some * 10_000 * seconds)
        self.full_us += int(full * 10_000 * seconds)
        for name, rate in moved.items():
            self.counters[name] += int(rate * seconds)
        for core, share in zip_longest(self.cores, kernel[: len(self.cores)], fillvalue=0.0):
            core[1] += int(share * 10 * seconds)
            core[2] += int((100 - share) * 10 * seconds)
        self.readings.append((self.at, self.rows()))
        return self

    def rows(self) -> list[Row]:
        made: list[Row] = [VmCounter(name, value) for name, value in self.counters.items()]
        made.append(Pressure("memory", "some", 0.0, 0.0, 0.0, self.some_us))
        made.append(Pressure("memory", "full", 0.0, 0.0, 0.0, self.full_us))
        made.append(Pressure("io", "some", 0.0, 0.0, 0.0, 7 * self.some_us))
        for cpu, (user, system, idle) in enumerate(self.cores):
            made.append(CoreTimes(cpu, user, 0, system, idle, 0, 0, 0, 0))
        return made

    def add(self, *rows: Row, at: float | None = None) -> Machine:
        """Rows of other tables, in a reading of their own."""
        self.readings.append((self.at if at is None else at, list(rows)))
        return self

    def window(self, without: Sequence[type[Row]] = ()) -> Window:
        kept = [
            (at, [row for row in rows if type(row) not in without]) for at, rows in self.readings
        ]
        return make_window(sorted(kept, key=lambda amount: amount[0]))


def sample(
    second: int, cpu: int, frames: tuple[str, ...], samples: int, who: tuple[int, str] = (77, "dd")
) -> StackCount:
    """Caught so often in that second on that core."""
    return StackCount(second, cpu, who[0], who[0], who[1], frames, samples)
