"""Kernel stacks of every core, by ``perf record`` over the window. Only where asked: ``--stacks``.

perf samples at 97 Hz (not 100, which would march in step with the kernel's own ticks) by
`cpu-clock`, which virtual machines offer too, kernel call chains only, on the monotonic clock. The
capture goes to a private directory, is read in binary when the window closes (`perfdata`), named by
``/proc/kallsyms`` (`kallsyms`), and is deleted. What comes out of it is what ``perf script`` says::

    kubelet  2113/2140  [005]  5296.196540:
            ffffffff8127d1f0 mem_cgroup_iter
            ffffffff81281a4b memcg_stat_show

Quirks: a stack that ends in an idle function is idle; softirq work that interrupted idle ends
elsewhere and is kept (tools that search the whole stack for "idle" lose exactly that). Kernel
addresses need `kernel.kptr_restrict` low enough or root to be named; without, stacks are counted
all the same, as ``[unknown]``.

>>> is_idle("pv_native_safe_halt"), is_idle("net_rx_action")
(True, False)
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from sexton.errors import SourceDenied
from sexton.host.host import Host
from sexton.host.runner import Running, start
from sexton.model.row import Row
from sexton.model.stack import StackCount
from sexton.sources.registry import source

if TYPE_CHECKING:  # numpy comes with them, and most diagnoses take no stacks
    from sexton.profile.perf.kallsyms import Kallsyms
    from sexton.profile.perf.raw import Raw

HERTZ = 97
#: Deep enough for any kernel path, bounded against corrupt chains.
MOST_FRAMES = 64
_IDLE = re.compile(
    r"^(native_safe_halt|default_idle\w*|pv_native_safe_halt|acpi_idle\w*|acpi_safe_halt"
    r"|intel_idle\w*|mwait_idle\w*|cpuidle_\w+|do_idle|cpu_startup_entry|poll_idle|arch_cpu_idle)"
)


@source(
    "perf record -a -g",
    rows=(StackCount,),
    period_s=3600,
    deadline_s=30,
    grant="sudo sexton diagnose --stacks  # needs perf: apt-get install linux-perf",
    opt_in="--stacks",
)
class Stacks:
    """Begins at the first read and gives its rows at the second, when the window closes."""

    def __init__(self, host: Host) -> None:
        from tempfile import TemporaryDirectory  # heavy, and most diagnoses take no stacks

        host.require_live("perf record")
        self._host = host
        self._folder = TemporaryDirectory(prefix="sexton-perf-")
        self._running: Running | None = None

    def collect(self) -> Iterable[Row]:
        if self._running is None:
            self._running = start(_command(self._capture))
            return []
        self._running.stop()
        self._running = None
        if not _has_samples(self._capture):
            need = "it needs root, or kernel.perf_event_paranoid below 0"
            raise SourceDenied("perf record", f"recorded nothing; {need}")
        from sexton.profile.perf import kallsyms
        from sexton.profile.perf.perfdata import read_raw

        raw = read_raw(self._capture)
        try:
            table = kallsyms.read(self._host.files)
        except SourceDenied:
            table = None
        return list(counted(raw, table))

    def close(self) -> None:
        if self._running is not None:
            self._running.stop()
        self._folder.cleanup()

    @property
    def _capture(self) -> str:
        return f"{self._folder.name}/perf.data"


def _has_samples(capture: str) -> bool:
    try:
        return os.stat(capture).st_size > 0
    except OSError:
        return False


def _command(output: str) -> list[str]:
    base = ["perf", "record", "-q", "-F", str(HERTZ), "-e", "cpu-clock", "-a", "-g"]
    return [*base, "--kernel-callchains", "-k", "CLOCK_MONOTONIC", "-m", "128", "-o", output]


def is_idle(leaf: str) -> bool:
    """Does a stack that ends there wait for work?"""
    return _IDLE.match(leaf) is not None


def counted(raw: Raw, table: Kallsyms | None) -> Iterator[StackCount]:
    """Counts of equal kernel stacks, by second, core and thread; idle left out."""
    from sexton.profile.perf.kernel_names import kernel_names

    columns = raw.columns
    names, which = kernel_names(columns.address, table, raw.kernel.ksymbols)
    inside = (columns.space == 0).tolist()
    name_of = [names[each][0] for each in which.tolist()]
    frames = columns.stack_frame.tolist()
    starts = columns.stack_start.tolist()
    stacks: list[tuple[str, ...]] = []
    for begin, end in pairwise(starts):
        kernel = [name_of[each] for each in frames[begin:end] if inside[each]]
        stacks.append(tuple(kernel[:MOST_FRAMES]))
    seconds = (columns.time_ns // 1_000_000_000).tolist()
    samples = Counter(
        zip(
            seconds,
            columns.cpu.tolist(),
            columns.pid.tolist(),
            columns.tid.tolist(),
            columns.comm.tolist(),
            columns.stack.tolist(),
            strict=True,
        )
    )
    counts: Counter[tuple[int, int, int, int, str, tuple[str, ...]]] = Counter()
    for (second, cpu, pid, tid, comm, stack), count in samples.items():
        if stacks[stack] and not is_idle(stacks[stack][0]):
            counts[(second, cpu, pid, tid, raw.comms[comm], stacks[stack])] += count
    for (second, cpu, pid, tid, named, frames_of), count in sorted(counts.items()):
        yield StackCount(second, cpu, pid, tid, named, frames_of, count)
