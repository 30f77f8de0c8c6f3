"""How many are dying below a parent, and a gauge cheap enough to look at fifty times a second.

v2 counts them at the parent itself (`cgroup.stat`). v1 does not: only the whole node's can be had
(``/proc/cgroups`` less every directory), so what other parents lose or gain meanwhile is in it. The
bytes the dead hold are an upper bound by plain counters that walk nothing: the parent's less its
live children's.

The kernel lets go of a cgroup some milliseconds after its last page (an RCU grace period and a work
queue), so a count is taken when it stands still.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from sexton.errors import CommandError, SourceAbsent, SourceError
from sexton.host.host import Host
from sexton.host.reader import text, walk
from sexton.model.text import printable
from sexton.sources.cgroupfs import census, stat
from sexton.sources.cgroupfs.estimate import number, pages_bytes
from sexton.sources.cgroupfs.layout import Layout, controller, read_layout

PARENT = "below the parent"
NODE = "on the whole node"
#: Children whose counters are read for the bytes.
MOST_CHILDREN = 5_000
_STILL_S = 0.15
_MOST_SETTLE_S = 3.0


class Dying(NamedTuple):
    """`number` is `None` where it cannot be known (v1 in a cgroup namespace); `bytes`, what they
    hold, and `living_bytes`, what the parent's live children do, where the counters are missing.
    `scope` says whose dead `number` is of."""

    number: int | None
    bytes: int | None
    living_bytes: int | None
    scope: str
    method: str


@dataclass(frozen=True, slots=True)
class Parent:
    """A live cgroup as the kernel calls it, in the hierarchy that has memory."""

    path: str
    layout: Layout

    @property
    def directory(self) -> str:
        return f"{self.layout.mount_point}{self.path}"

    @property
    def version(self) -> int:
        return self.layout.version or 0


def parent_at(host: Host, path: str) -> Parent:
    """The parent by its path from the hierarchy's root; `CommandError` where it is none."""
    shown = printable(path)
    layout = read_layout(host)
    if layout.mount_point is None or layout.version is None:
        raise CommandError(f"{shown}: {layout.reason or 'no memory hierarchy here'}")
    if path == "/":
        raise CommandError("/: the whole node's memory would be at stake; refused")
    if not path.startswith("/") or any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise CommandError(f"{shown}: not a cgroup's path")
    parent = Parent(path, layout)
    try:
        there = host.files.status(parent.directory).is_dir
    except SourceError:
        there = False
    if not there:
        raise CommandError(f"{shown}: no such cgroup any more")
    return parent


def gauge(host: Host, parent: Parent) -> int | None:
    """A number that falls by one with each that is freed; cheap, and coarser than `dying` on v1,
    where births and ordinary deaths elsewhere move it as well."""
    try:
        if parent.version == 2:
            return _counted(host, parent)
        memory = controller(host, "memory")
        return None if memory is None else memory.cgroups
    except SourceError:
        return None


def dying(host: Host, parent: Parent) -> Dying:
    """The count as of now."""
    held, living = _held(host, parent)
    if parent.version == 2:
        return Dying(_counted(host, parent), held, living, PARENT, "cgroup.stat")
    found, _ = census.take(host, parent.layout)
    return Dying(found.dying, held, living, NODE, found.method)


def usage(host: Host, parent: Parent) -> int | None:
    """Bytes of all below the parent, dead and alive: one plain counter."""
    try:
        return _usage(host, parent, parent.directory)
    except SourceError:
        return None


def settled(host: Host, parent: Parent) -> Dying:
    """The count once the gauge stood still, which is waited for some seconds at the most."""
    end = time.monotonic() + _MOST_SETTLE_S
    last, since = gauge(host, parent), time.monotonic()
    while (now := time.monotonic()) < end and now - since < _STILL_S:
        time.sleep(0.01)
        current = gauge(host, parent)
        if current != last:
            last, since = current, time.monotonic()
    return dying(host, parent)


def _counted(host: Host, parent: Parent) -> int:
    row = stat.parse(text(host.files, f"{parent.directory}/{stat.PATH}"), parent.path)
    return row.dying if row.dying_memory is None else row.dying_memory


def _held(host: Host, parent: Parent) -> tuple[int | None, int | None]:
    """Bytes of the dead (an upper bound) and of the live children."""
    living = 0
    try:
        whole = _usage(host, parent, parent.directory)
        children = list(walk(host.files, parent.directory, depth=1))[1:]
        if len(children) > MOST_CHILDREN:
            return None, None
        for child in children:
            try:
                living += _usage(host, parent, f"{parent.directory}{child.path}")
            except SourceAbsent:  # removed meanwhile
                continue
    except SourceError:
        return None, None
    return max(0, whole - living), living


def _usage(host: Host, parent: Parent, directory: str) -> int:
    if parent.version == 2:
        return number(host, f"{directory}/memory.current")
    try:
        return pages_bytes(host, directory)
    except SourceAbsent:  # no kernel memory accounting
        return number(host, f"{directory}/memory.usage_in_bytes")
