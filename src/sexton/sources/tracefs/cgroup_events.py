r"""`cgroup:cgroup_mkdir`, `cgroup_rmdir`, `cgroup_release`: cgroups created, removed and freed.

Defined in the kernel's include/trace/events/cgroup.h. An excerpt of ``trace_pipe`` on 6.1,
with the clock set to ``mono``, of a unit that systemd restarts::

     systemd-1       [000] d..1.    46.826965: cgroup_rmdir: root=0 id=567 level=2 path=/system.slice/demo-crash.service
     systemd-1       [000] d..1.    46.828444: cgroup_rmdir: root=6 id=1059 level=2 path=/system.slice/demo-crash.service
     kworker/0:1-17  [000] d..1.    46.849457: cgroup_release: root=0 id=567 level=2 path=/system.slice/demo-crash.service

Here 567, of hierarchy 0, is freed after 22 ms; 1059, of the memory hierarchy, was never released:
**a removal without a release is a zombie**, with its path and without BPF, from the moment tracing
starts. It counts as one only after five seconds: a release takes milliseconds, or seconds on a busy
node.

Quirks: the three are joined by `id` (the directory's inode since 5.5) and never by path, which the
next incarnation reuses. The path is raw: it may hold spaces, ESC, bytes that are not UTF-8, and
text that looks like an event; a process name may even hold a newline. The buffer overwrites its
oldest records if it is not read in time: they are counted in `CgroupEventGap`, and after a gap a
missing release proves nothing. Paths are cut at 1,024 bytes.

>>> text = "a-1 [001] d..1.  46.486261: cgroup_rmdir: root=6 id=1059 level=2 path=/a b\n"
>>> list(parse(text))
[CgroupEvent(kind='rmdir', cgroup_id=1059, path='/a b', mono_ns=46486261000)]
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterator

from sexton.errors import SourceMalformed
from sexton.host.host import Host
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupEvent, CgroupEventGap
from sexton.sources.registry import Reading, source
from sexton.sources.tracefs.instance import GRANT, CgroupTrace

PATH = "/sys/kernel/tracing/instances/sexton-*/trace_pipe"
# The first match is the kernel's own text: a process name has 15 bytes, too few to forge one, and
# the path, which is long enough, comes last.
_LINE = re.compile(
    r"([0-9]{1,12})\.([0-9]{6,9}): cgroup_(mkdir|rmdir|release): (.*)$", re.ASCII | re.DOTALL
)
_FIELDS = re.compile(
    r"root=[0-9]+ id=([0-9]{1,20}) (?:level=[0-9]+ )?path=(.*)$", re.ASCII | re.DOTALL
)


def parse(content: str) -> Iterator[CgroupEvent]:
    """Events in the order of the text; comments and other events are skipped."""
    for number, line in enumerate(content.split("\n"), 1):
        if line.startswith("#"):
            continue
        found = _LINE.search(line)
        if found is None:
            continue
        seconds, fraction, kind, rest = found.groups()
        fields = _FIELDS.match(rest)
        if fields is None:
            raise SourceMalformed(PATH, number, f"cgroup_{kind} without its id and path")
        mono_ns = int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0"))
        yield CgroupEvent(kind, int(fields[1]), fields[2], mono_ns)


@source(PATH, rows=(CgroupEvent, CgroupEventGap), period_s=0.5, deadline_s=1.0, grant=GRANT)
class CgroupEvents(Reading):
    """Armed by the first reading; each one after it yields what happened since."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._trace: CgroupTrace | None = None

    def collect(self) -> Iterator[Row]:
        if self._trace is None:
            self._trace = CgroupTrace(self._host)
        content = self._trace.read()
        lost = self._trace.lost(content)
        if lost:
            yield CgroupEventGap(lost)
        yield from parse(content)

    def close(self) -> None:
        if self._trace is not None:
            self._trace.close()
            self._trace = None
