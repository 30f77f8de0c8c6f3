"""`/sys/kernel/debug/lru_gen`: dying memory cgroups with their paths.

Documented in the kernel's Documentation/admin-guide/mm/multigen_lru.rst, "Experimental features"
(CONFIG_LRU_GEN, 6.1 and later). An excerpt of 6.1 while a unit crash-loops::

    memcg     3 /system.slice
     node     0
              0      59368          0           0
              1      59368          0           0
              2      59368          0           0
              3      59368          0           0
    memcg     0 /system.slice/systemd-modules-load.service
     node     0
              0      58428          0           0

Quirks: a dying cgroup has released its id, so it prints as 0, with its former path: the only file
that names zombies from before Sexton was started. The kernel searches the list from its head for
every few kilobytes it prints, so the time grows about as the square of the number of cgroups: above
`MOST_MEMCGS` the file is not read, below it a child with a deadline reads it, off the cores that
serve the NIC. The limit is a count and not a time: there is no smaller file to time first, the cost
of a part says little about a whole that grows as its square, and a deadline takes effect only
between two reads. A name may hold anything but a newline.

>>> text = "memcg     3 /a b\\n node     0\\n  0  59368  0  0 \\nmemcg     0 /a b/gone\\n"
>>> list(parse(text))
[OfflineMemcg(path='/a b/gone')]
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceAbsent, SourceDenied, SourceMalformed, SourceSkipped
from sexton.host.host import ON_THE_NODE
from sexton.host.reader import text
from sexton.model.rows.cgroup import OfflineMemcg
from sexton.sources.cgroupfs import census
from sexton.sources.cgroupfs.layout import controller, read_layout
from sexton.sources.cores import run_child
from sexton.sources.procfs import mountinfo
from sexton.sources.registry import Reading, source

PATH = "/sys/kernel/debug/lru_gen"
#: Each cgroup prints about 250 bytes (6.1, one node), so every 4 kB, or 16 of them, the list is
#: searched from its head: 5,000 make under a million steps, 70,000 about 150 million. Counted from
#: the code (`lru_gen_seq_start`), not timed.
MOST_MEMCGS = 5_000
_BUILT = "a kernel of 6.1 or later, built with CONFIG_LRU_GEN=y"
_DEADLINE_S = 2.0
_CHILD = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_RDONLY)
while piece := os.read(descriptor, 1 << 20):
    os.write(1, piece)
"""


def parse(content: str) -> Iterator[OfflineMemcg]:
    """The dying cgroups, in the kernel's order; paths may repeat."""
    for number, line in enumerate(content.split("\n"), 1):
        if not line.startswith("memcg "):
            continue
        identity, space, path = line.removeprefix("memcg ").lstrip(" ").partition(" ")
        if not identity.isascii() or not identity.isdecimal() or not space:
            raise SourceMalformed(PATH, number, "not a memcg's id and path")
        if not identity.strip("0") and path:
            yield OfflineMemcg(path)


@source(
    PATH,
    rows=(OfflineMemcg,),
    period_s=0.0,
    deadline_s=3.0,
    grant="sudo mount -t debugfs none /sys/kernel/debug  # needs CONFIG_LRU_GEN, 6.1 or later",
)
class LruGen(Reading):
    """A row per dying memory cgroup that the kernel still lists."""

    def collect(self) -> Iterator[OfflineMemcg]:
        path = self._path()
        if self._host.moment is None:  # an archive costs the node nothing
            self._refuse_if_many()
        return parse(self._content(path))

    def _path(self) -> str:
        mounts = mountinfo.parse(text(self._files, f"{self._host.self_dir}/mountinfo"))
        points = [mount.mount_point for mount in mounts if mount.fstype == "debugfs"]
        path = f"{points[-1]}/lru_gen" if points else PATH
        try:
            self._files.status(path)
        except SourceAbsent:
            if self._host.moment is not None:
                why = "not collected: only on the node itself"
                raise SourceAbsent(path, why, grant=ON_THE_NODE) from None
            if points:
                raise SourceAbsent(path, "not available on this kernel", grant=_BUILT) from None
            raise SourceAbsent(path, "debugfs is not mounted") from None
        except SourceDenied as denied:
            raise SourceDenied(path, denied.detail, grant="sudo sexton diagnose") from None
        return path

    def _refuse_if_many(self) -> None:
        counted, _ = census.recent(self._host, read_layout(self._host))
        memory = controller(self._host, "memory")
        total = counted.total
        if total is None and memory is not None:
            total = memory.cgroups
        if total is None:
            raise SourceSkipped(
                PATH, "the number of cgroups, and so the cost of reading it, is unknown"
            )
        if total > MOST_MEMCGS:
            raise SourceSkipped(
                PATH, f"too expensive with {total:,} memory cgroups (the cost grows as the square)"
            )

    def _content(self, path: str) -> str:
        if not self._host.live:
            return text(self._files, path)
        output = run_child(self._host, path, _DEADLINE_S, _CHILD, path)
        return output.decode("utf-8", "surrogateescape")
