"""Kernel stacks of every core, by ``perf record`` over the window. Only where asked: ``--stacks``.

perf samples at 97 Hz (not 100, which would march in step with the kernel's own ticks) by
`cpu-clock`, which virtual machines offer too, kernel call chains only, on the monotonic clock. The
capture goes to a private directory, is turned into text by ``perf script`` when the window closes,
and is deleted. An excerpt of that text::

    kubelet  2113/2140  [005]  5296.196540:
            ffffffff8127d1f0 mem_cgroup_iter
            ffffffff81281a4b memcg_stat_show

Quirks: a comm may hold spaces, brackets and even a newline, so a header is recognised by its tail.
A stack that ends in an idle function is idle; softirq work that interrupted idle ends elsewhere and
is kept (tools that search the whole stack for "idle" lose exactly that). Kernel addresses need
`kernel.kptr_restrict` low enough or root to be named.

>>> excerpt = '''kubelet  2113/2140  [005]  5296.196540:
...         ffffffff8127d1f0 mem_cgroup_iter
...         ffffffff81281a4b memcg_stat_show
...
... '''
>>> [(row.cpu, row.tid, row.frames, row.samples) for row in parse(excerpt)]
[(5, 2140, ('mem_cgroup_iter', 'memcg_stat_show'), 1)]
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from sexton.errors import SourceDenied, SourceMalformed
from sexton.model.row import Row
from sexton.model.stack import StackCount
from sexton.sources.host import Host
from sexton.sources.registry import source
from sexton.sources.runner import Running, run, start

HERTZ = 97
#: Deep enough for any kernel path, bounded against corrupt chains.
MOST_FRAMES = 64
_HEADER = re.compile(r"^(.{1,16}?)\s+(\d+)/(\d+)\s+\[(\d+)\]\s+(\d+)\.\d+:\s*$")
_FRAME = re.compile(r"^\s+[0-9a-f]+ (\S+)")
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
    asked_by="--stacks",
)
class Stacks:
    """Begins at the first read and gives its rows at the second, when the window closes."""

    def __init__(self, host: Host) -> None:
        from tempfile import TemporaryDirectory  # heavy, and most diagnoses take no stacks

        host.require_live("perf record")
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
        script = ["perf", "script", "-i", self._capture, "-F", "comm,pid,tid,cpu,time,ip,sym"]
        ended = run(script, deadline_s=25, limit=256 << 20)
        if ended.status != 0:
            raise SourceMalformed("perf script", 0, ended.errors.decode("utf-8", "replace")[:200])
        return list(parse(ended.output.decode("utf-8", "surrogateescape")))

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


def parse(text: str) -> Iterator[StackCount]:
    """Counts of equal stacks, by second, core and thread; idle left out."""
    counts: Counter[tuple[int, int, int, int, str, tuple[str, ...]]] = Counter()
    header: tuple[int, int, int, int, str] | None = None
    frames: list[str] = []

    def close() -> None:
        if header is not None and frames and not _IDLE.match(frames[0]):
            counts[(*header, tuple(frames))] += 1

    for line in text.split("\n"):
        found = _HEADER.match(line)
        if found is not None:
            close()
            comm, pid, tid, cpu, second = found.groups()
            try:
                header = (int(second), int(cpu), int(pid), int(tid), comm)
            except ValueError:
                raise SourceMalformed("perf script", 0, "a number too long to be one") from None
            frames = []
        elif header is not None and len(frames) < MOST_FRAMES and (frame := _FRAME.match(line)):
            frames.append(frame[1])
    close()
    for (second, cpu, pid, tid, comm, stack), samples in sorted(counts.items()):
        yield StackCount(second, cpu, pid, tid, comm, stack, samples)
