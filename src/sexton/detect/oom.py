"""Kills by the kernel's OOM killer, assembled from the lines of its log.

One kill is several lines, seen on 6.18 in this order::

    memory: usage 40960kB, limit 40960kB, failcnt 94
    oom-kill:constraint=CONSTRAINT_MEMCG,…,oom_memcg=/a,task_memcg=/a/b,task=python3,pid=88,uid=0
    Memory cgroup out of memory: Killed process 88 (python3) total-vm:57596kB, anon-rss:47720kB, …

The kernel limits the first two to ten in five seconds; the last comes with every kill. With
`memory.oom.group` the other processes of the cgroup are killed too, a last line each: that is one
kill of several processes. Before 4.20 the second line is ``Task in /a/b killed as a result of limit
of /a``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sexton.detect import kernel_log
from sexton.detect.kernel_log import Line
from sexton.detect.stems import container, split, unit_of
from sexton.model.text import size
from sexton.model.window import Window

FAMILY = "oom"
_KILLED = ("oom-killed", "oom-killed-memcg", "oom-killed-4.x")
#: Lines of one kill are at most this far apart.
_ONE_KILL_S = 10.0
#: Values of `constraint=` for a shortage of neither the node nor a cgroup.
_NUMA = {"CONSTRAINT_CPUSET": "cpuset", "CONSTRAINT_MEMORY_POLICY": "memory policy"}


@dataclass(frozen=True, slots=True)
class Kill:
    """One process that was killed. `scope` is what was short of memory: "cgroup", "node", "cpuset",
    "memory policy", or "" if no line says. `cgroup` is the one whose limit was reached."""

    comm: str
    pid: int | None
    wall_s: float | None
    age_s: float | None
    scope: str = ""
    cgroup: str | None = None
    task_cgroup: str | None = None
    limit_bytes: int | None = None
    rss_bytes: int | None = None
    #: Killed along with another of its cgroup (`memory.oom.group`).
    along: bool = False

    @property
    def task(self) -> str:
        return self.comm if self.pid is None else f"{self.comm}[{self.pid}]"

    @property
    def unit(self) -> str | None:
        """The unit the process was in."""
        return unit_of(self.task_cgroup or self.cgroup or "")

    @property
    def home(self) -> str | None:
        """The cgroup its kills are counted under: the pod's, since a restarted container gets
        another cgroup."""
        if self.cgroup is None:
            return None
        parent = split(self.cgroup)[0]
        return parent if container(parent) == "Kubernetes pod" else self.cgroup

    @property
    def words(self) -> str:
        """The task with the memory it used."""
        return self.task if self.rss_bytes is None else f"{self.task} ({size(self.rss_bytes)})"


def kills(window: Window) -> list[Kill]:
    """Every kill in the log, the oldest first."""
    return window.keep("oom kills", lambda: list(_kills(_once(window))))


def _once(window: Window) -> Iterator[Line]:
    """Each line once: a restarted recorder reads the same lines again."""
    seen: set[tuple[str, int | None]] = set()
    for line in kernel_log.lines(window, (FAMILY,)):
        key = (line.event.message, line.event.mono_us)
        if key not in seen:
            seen.add(key)
            yield line


def _kills(lines: Iterable[Line]) -> Iterator[Kill]:
    named: dict[int | None, Kill] = {}
    short: Kill | None = None  # the cgroup of a 4.x kernel's next kill
    usage: Line | None = None
    group: Kill | None = None
    last: Kill | None = None
    for line in lines:
        pattern = line.event.pattern
        if pattern == "oom-usage":
            usage = line
        elif pattern == "oom-kill":
            made = _named(line)
            if made.scope == "cgroup" and usage is not None and _close(usage, made):
                made = replace(made, limit_bytes=usage.number("limit_bytes"))
            usage = None
            named[made.pid] = made
        elif pattern == "oom-limit-4.x":
            short = replace(
                _dated(line), scope="cgroup", cgroup=line.text("cgroup"),
                task_cgroup=line.text("task_cgroup"),
            )  # fmt: skip
        elif pattern == "oom-group" and last is not None and _close(line, last):
            group = replace(last, task_cgroup=line.text("cgroup"), along=True)
        elif pattern in _KILLED:
            found = _named(line)
            known = named.pop(found.pid, None) or short
            if known is None and group is not None and _close(line, group):
                known = group
            short = None
            last = _joined(found, known)
            yield last
    yield from named.values()  # the line of the kill itself is lost


def _dated(line: Line) -> Kill:
    return Kill(line.text("comm") or "?", line.number("pid"), line.wall_s, line.age_s)


def _named(line: Line) -> Kill:
    constraint = line.text("constraint")
    scope = line.text("scope") or ""
    if constraint is not None:
        scope = "cgroup" if line.text("cgroup") is not None else "node"
        scope = _NUMA.get(constraint, scope)
    parts = [line.number(f"{kind}_bytes") for kind in ("anon", "file", "shmem")]
    known = [part for part in parts if part is not None]
    return replace(
        _dated(line),
        scope=scope,
        cgroup=line.text("cgroup"),
        task_cgroup=line.text("task_cgroup"),
        rss_bytes=sum(known) if known else None,
    )


def _joined(found: Kill, known: Kill | None) -> Kill:
    if known is None:
        return found
    return replace(
        found,
        scope=known.scope or found.scope,
        cgroup=known.cgroup,
        task_cgroup=known.task_cgroup,
        limit_bytes=known.limit_bytes,
        along=known.along,
    )


def _close(line: Line, to: Line | Kill) -> bool:
    """Do they belong to one kill? Undated lines are assumed to."""
    if line.age_s is None or to.age_s is None:
        return True
    return abs(line.age_s - to.age_s) <= _ONE_KILL_S
