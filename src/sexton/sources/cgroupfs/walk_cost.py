"""`memory.stat` and `memory.numa_stat`: how long one read at the root stalls a core.

Documented in the kernel's Documentation/admin-guide/cgroup-v1/memory.rst;
commit dd8657b6c1cb (5.8) ended the walk in `memory.numa_stat`, where 10,000 memory cgroups had cost
0.7 s a read. The beginning of ``memory.numa_stat`` on 5.10::

    total=0 N0=0
    file=0 N0=0
    anon=0 N0=0
    unevictable=0 N0=0
    hierarchical_total=5643 N0=5643

Quirks: where the read walks all cgroups, reading it can itself cause the outage. So a child first
estimates the cost on a few places that are certainly small (`sexton.sources.cgroupfs.estimate`);
above `MOST_S` the root is not read, and the note says so. Between `QUICK_S` and `MOST_S` the root's
file is read once, by a child with a deadline, pinned to cores that do not serve the NIC's
interrupts: a kernel walk cannot be interrupted, so not even a deadline protects the core it runs
on. Only on the node itself: reading a copied file says nothing.

>>> verdict(12, 4.8)
'at the root: would stall a core for about 4.8 s; not read'
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceError
from sexton.model.rows.cgroup import WalkCost
from sexton.model.text import seconds
from sexton.sources.cgroupfs.estimate import FILES, Estimate, estimates
from sexton.sources.cgroupfs.layout import HOST_VIEW, read_layout
from sexton.sources.cores import off_the_nic, run_child
from sexton.sources.registry import Reading, source

#: The longest stall of a core that we accept: 1/100 of the NIC watchdog's 5 s.
MOST_S = 0.05
#: An estimate below this is good enough, and saves a child process.
QUICK_S = 0.005
_DEADLINE_S = 2.0
_CHILD = """
import os, sys, time
descriptor = os.open(sys.argv[1], os.O_RDONLY)
started = time.perf_counter()
while os.read(descriptor, 1 << 18):
    pass
print(time.perf_counter() - started)
"""


@source(
    "/sys/fs/cgroup/**/memory.numa_stat",
    rows=(WalkCost,),
    period_s=0.0,
    deadline_s=6.0,
    grant=HOST_VIEW,
)
class WalkCosts(Reading):
    """One row per walking file."""

    def collect(self) -> Iterator[WalkCost]:
        self._host.require_live(FILES[0])
        layout = read_layout(self._host)
        for guess in estimates(self._host, layout):
            yield self._row(layout.mount_point or "", guess)

    def _row(self, top: str, guess: Estimate) -> WalkCost:
        root_s = None
        if guess.estimate_s > MOST_S:
            note = verdict(guess.memcgs, guess.estimate_s)
        elif guess.estimate_s < QUICK_S:
            note = f"at the root: an estimated {seconds(guess.estimate_s)}, too fast to matter"
        elif guess.most_s > MOST_S:
            about, most = seconds(guess.estimate_s), seconds(guess.most_s)
            note = f"at the root: an estimated {about}, at most {most}; not read"
        else:
            root_s, note = self._read_root(f"{top}/{guess.file}")
        return WalkCost(
            file=guess.file,
            path=guess.path,
            memcgs=guess.memcgs,
            measured_s=guess.measured_s,
            estimate_s=guess.estimate_s,
            root_s=root_s,
            note=f"{guess.file} {note}",
        )

    def _read_root(self, path: str) -> tuple[float | None, str]:
        try:
            took_s = float(run_child(self._host, path, _DEADLINE_S, _CHILD, path))
        except SourceError as error:
            return None, f"not read at the root: {error.detail}"
        except ValueError:
            return None, "not read at the root: the reader printed no time"
        return took_s, f"read at the root {off_the_nic(self._host).note}"


def verdict(memcgs: int, estimate_s: float) -> str:
    """Why the root was not read; `memcgs` 1 means that only leaves could be timed."""
    if memcgs == 1:
        return (
            f"at the root: would stall a core for at most {seconds(estimate_s)} (from one leaf; "
            "no subtree was small enough to be timed safely); not read"
        )
    return f"at the root: would stall a core for about {seconds(estimate_s)}; not read"
