"""Kernel stacks of every core, by ``perf record`` over the window. Opt-in: ``--stacks``.

perf samples at 97 Hz (not 100, which would run in lockstep with the kernel's tick) by `cpu-clock`,
which virtual machines have too, kernel call chains only, on the monotonic clock. The capture is
written to a private directory, read when the window closes (`perfdata`), symbolised with
``/proc/kallsyms`` (`kallsyms`), and deleted. The result is that of ``perf script``::

    kubelet  2113/2140  [005]  5296.196540:
            ffffffff8127d1f0 mem_cgroup_iter
            ffffffff81281a4b memcg_stat_show

Quirks: a stack that ends in an idle function is idle; softirq work that interrupted idle ends in
another function and is kept (tools that search the whole stack for "idle" lose it). Naming kernel
addresses needs root or a low `kernel.kptr_restrict`; otherwise stacks are counted as
``[unknown]``.

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
from sexton.model.rows.trace import StackCount
from sexton.sources.registry import Reading, source

if TYPE_CHECKING:  # they import numpy, and most diagnoses take no stacks
    from sexton.profile.perf.kallsyms import Kallsyms
    from sexton.profile.perf.raw import Raw

HERTZ = 97  # not 100, which would sample in step with the kernel's ticks
#: Deep enough for any kernel path; a limit for corrupt chains.
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
class Stacks(Reading):
    """Starts perf at the first read and returns rows at the second, when the window closes."""

    def __init__(self, host: Host) -> None:
        from tempfile import TemporaryDirectory  # heavy, and most diagnoses take no stacks

        host.require_live("perf record")
        super().__init__(host)
        self._folder = TemporaryDirectory(prefix="sexton-perf-")
        self._running: Running | None = None

    def collect(self) -> Iterable[Row]:
        if self._running is None:
            self._running = start(_command(self._capture))
            return []
        self._running.stop()
        self._running = None
        if not _has_samples(self._capture):
            need = "needs root, or kernel.perf_event_paranoid below 0"
            raise SourceDenied("perf record", f"recorded nothing; {need}")
        from sexton.profile.perf import kallsyms
        from sexton.profile.perf.perfdata import read_raw

        raw = read_raw(self._capture)
        try:
            table = kallsyms.read(self._files)
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
    # -B: at its end perf would go over all samples for build ids and copy programs to ~/.debug; its
    # 6.1 aborted there.
    base = ["perf", "record", "-q", "-B", "-F", str(HERTZ), "-e", "cpu-clock", "-a", "-g"]
    return [*base, "--kernel-callchains", "-k", "CLOCK_MONOTONIC", "-m", "128", "-o", output]


def is_idle(leaf: str) -> bool:
    """Is a stack that ends there idle?"""
    return _IDLE.match(leaf) is not None


def counted(raw: Raw, table: Kallsyms | None) -> Iterator[StackCount]:
    """Counts of equal kernel stacks, by second, core and thread, without idle."""
    from sexton.profile.perf.kallsyms import kernel_names

    columns = raw.columns
    names, which = kernel_names(columns.address, table, raw.kernel.ksymbols)
    inside = (columns.space == 0).tolist()
    name_of = [names[index][0] for index in which.tolist()]
    frames = columns.stack_frame.tolist()
    starts = columns.stack_start.tolist()
    stacks: list[tuple[str, ...]] = []
    for begin, end in pairwise(starts):
        kernel = [name_of[frame] for frame in frames[begin:end] if inside[frame]]
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
