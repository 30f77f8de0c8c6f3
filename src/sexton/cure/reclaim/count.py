"""How many cgroups are dying below a parent, and a gauge cheap enough to read 50 times a second.

v2 counts them at the parent itself (`cgroup.stat`). v1 has only the count of the whole node
(``/proc/cgroups`` minus all directories), which other parents change too. The bytes held by zombies
are an upper bound from plain counters that walk nothing: the parent's minus its live children's.

The kernel releases a cgroup some milliseconds after its last page (an RCU grace period and a work
queue), so `settled` waits until the count is stable.
"""

from __future__ import annotations

import contextlib
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
#: At most this many children are read for the bytes.
MOST_CHILDREN = 5_000
_STILL_S = 0.15
_MOST_SETTLE_S = 3.0


class Dying(NamedTuple):
    """Dying cgroups. `number` is `None` if unknown (v1 in a cgroup namespace); `bytes` are charged
    to zombies and `live_bytes` to the parent's live children, `None` without counters. `scope`:
    whether `number` covers the parent or the node."""

    number: int | None
    bytes: int | None
    live_bytes: int | None
    scope: str
    method: str


@dataclass(frozen=True, slots=True)
class Parent:
    """A live cgroup by its kernel path, in the memory hierarchy."""

    path: str
    layout: Layout

    @property
    def directory(self) -> str:
        return f"{self.layout.mount_point}{self.path}"

    @property
    def version(self) -> int:
        return self.layout.version or 0

    @property
    def usage_file(self) -> str:
        """Name of the file with its bytes."""
        return "memory.current" if self.version == 2 else "memory.usage_in_bytes"

    @property
    def reclaim_file(self) -> str:
        """Name of the file that reclaims its memory; the kernel may lack it."""
        return "memory.reclaim" if self.version == 2 else "memory.force_empty"


def parent_at(host: Host, path: str) -> Parent:
    """The parent by its path from the root of the hierarchy; `CommandError` if there is none."""
    shown = printable(path)
    layout = read_layout(host)
    if layout.mount_point is None or layout.version is None:
        raise CommandError(f"{shown}: {layout.reason or 'no memory hierarchy here'}")
    if path == "/":
        raise CommandError("/: reclaim would affect the whole node; refused")
    if not path.startswith("/") or any(part in ("", ".", "..") for part in path[1:].split("/")):
        raise CommandError(f"{shown}: not a cgroup path")
    parent = Parent(path, layout)
    try:
        exists = host.files.status(parent.directory).is_dir
    except SourceError:
        exists = False
    if not exists:
        raise CommandError(f"{shown}: cgroup no longer exists")
    return parent


def gauge(host: Host, parent: Parent) -> int | None:
    """A number that falls by one per zombie freed. Cheap, but coarser than `dying` on v1, where
    other cgroups that come and go change it too."""
    try:
        if parent.version == 2:
            return _counted(host, parent)
        memory = controller(host, "memory")
        return None if memory is None else memory.cgroups
    except SourceError:
        return None


def dying(host: Host, parent: Parent) -> Dying:
    """The current count."""
    held, live = _held(host, parent)
    if parent.version == 2:
        return Dying(_counted(host, parent), held, live, PARENT, "cgroup.stat")
    found, _ = census.take(host, parent.layout)
    return Dying(found.dying, held, live, NODE, found.method)


def usage(host: Host, parent: Parent) -> int | None:
    """Bytes of everything below the parent, dying and live: one plain counter."""
    try:
        return _usage(host, parent, parent.directory)
    except SourceError:
        return None


def settled(host: Host, parent: Parent) -> Dying:
    """The count once the gauge is stable, after at most `_MOST_SETTLE_S`."""
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
    """Bytes of zombies (an upper bound) and of live children."""
    live = 0
    try:
        whole = _usage(host, parent, parent.directory)
        children = list(walk(host.files, parent.directory, depth=1))[1:]
        if len(children) > MOST_CHILDREN:
            return None, None
        for child in children:
            try:
                live += _usage(host, parent, f"{parent.directory}{child.path}")
            except SourceAbsent:  # removed meanwhile
                continue
    except SourceError:
        return None, None
    return max(0, whole - live), live


def _usage(host: Host, parent: Parent, directory: str) -> int:
    if parent.version == 1:
        with contextlib.suppress(SourceAbsent):  # no kernel memory accounting
            return pages_bytes(host, directory)
    return number(host, f"{directory}/{parent.usage_file}")
