"""Live cgroups that nobody lives in: scopes and containers whose directories stayed behind.

They are no zombies, but are walked like them (*leaked_scopes*). One that systemd knows is stopped
as a unit; one that nobody knows is removed by `rmdir`, which the kernel refuses if a process is in
it after all. It is emptied first, by itself alone: a cgroup removed with pages still charged to it
becomes a zombie, and there would be one more.

Only what looks like a scope or a container is ever named, has no child and no process, and is
surely older than `YOUNGEST_S` (the directory's times may be younger than the directory, never
older). No undo brings its limits and counters back; an empty directory of the same name would be
another cgroup.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from sexton.cure.ordering import Ordered, Terms
from sexton.cure.protected import Rule, why_protected
from sexton.cure.reclaim.count import Parent
from sexton.cure.writer import UNIT_NAME, Writer
from sexton.detect.stems import container, split
from sexton.errors import CommandError, SourceAbsent, SourceError
from sexton.host.host import Host
from sexton.host.reader import exists, text, walk
from sexton.sources.cgroupfs.estimate import number
from sexton.sources.cgroupfs.layout import cgroup_mounts, read_layout
from sexton.sources.cores import off_the_nic
from sexton.sources.systemd.bus import SYSTEMD, Call, Refusal, open_bus
from sexton.sources.systemd.units import MARK

#: PROC_PID_INIT_INO in include/linux/proc_ns.h.
FIRST_PID_NAMESPACE = "pid:[4026531836]"
YOUNGEST_S = 600.0
MOST = 20_000
STOP, REMOVE = "systemctl stop", "rmdir"
_EMPTY_S = 2.0
_ASK_S = 5.0
_INIT = "/init.scope"


class Leftover(NamedTuple):
    """An empty live cgroup. `how` is `STOP` for a scope that systemd knows, else `REMOVE`."""

    path: str
    inode: int
    held_bytes: int
    age_s: float
    how: str

    @property
    def name(self) -> str:
        return split(self.path)[1]


class Removed(NamedTuple):
    """What came of one. `held_bytes` is what it still held when it went: more than 0 may have left
    a zombie."""

    path: str
    how: str
    held_bytes: int


def leftovers(
    host: Host, below: str = "/", youngest_s: float = YOUNGEST_S, extra: Iterable[Rule] = ()
) -> tuple[Leftover, ...]:
    """Every empty scope or container below a live cgroup, read now; the oldest first."""
    host.require_live(below)
    rules = tuple(extra)
    layout = read_layout(host)
    if layout.mount_point is None:
        raise CommandError(layout.reason or "no memory hierarchy here")
    if not layout.comparable:
        raise CommandError(f"{layout.reason}: who lives where cannot be told; {layout.advice}")
    if host.files.link("/proc/self/ns/pid") != FIRST_PID_NAMESPACE:
        # v1 does not even show that there are processes of another one in a cgroup.
        raise CommandError("this is a PID namespace: who lives where cannot be told")
    found = []
    for path, inode in _candidates(host, f"{layout.mount_point}{below.rstrip('/')}", below):
        name = split(path)[1]
        # A container's scope is named after its runtime, which is protected; the dead one is not.
        kept = any(fnmatchcase(name, rule.name) for rule in rules)
        if path == _INIT or kept or (container(path) is None and why_protected(name)):
            continue
        parent = Parent(path, layout)
        age_s = _age_s(parent.directory, inode)
        if age_s is None or age_s < youngest_s or not _is_empty(host, parent.directory):
            continue
        found.append(Leftover(path, inode, _held(host, parent), age_s, REMOVE))
        if len(found) == MOST:
            break
    known = _known_scopes(host, [each.name for each in found if each.name.endswith(".scope")])
    told = [each._replace(how=STOP) if each.name in known else each for each in found]
    return tuple(sorted(told, key=lambda each: -each.age_s))


def remove(host: Host, leftover: Leftover, writer: Writer) -> Removed:
    """Take one away; refused if it is not what was found, or somebody moved in."""
    layout = read_layout(host)
    parent = Parent(leftover.path, layout)
    try:
        inode = host.files.status(parent.directory).inode
    except SourceAbsent:
        return Removed(leftover.path, "gone already", 0)
    if inode != leftover.inode:
        raise CommandError(f"{leftover.path}: another one of that name by now; left alone")
    if not _is_empty(host, parent.directory):
        raise CommandError(f"{leftover.path}: somebody lives in it by now; left alone")
    if leftover.how == STOP:
        writer.systemctl("stop", leftover.name)
        return Removed(leftover.path, STOP, 0)
    if _held(host, parent):
        _empty(host, parent, writer)
    held = _held(host, parent)
    writer.remove_cgroup(parent.directory)
    for directory in _elsewhere(host, parent):
        if _is_empty(host, directory):
            writer.remove_cgroup(directory)
    return Removed(leftover.path, REMOVE, held)


def _candidates(host: Host, top: str, below: str) -> Iterator[tuple[str, int]]:
    prefix = below.rstrip("/")
    try:
        for directory in walk(host.files, top):
            path = f"{prefix}{directory.path}".rstrip("/")
            if directory.children or directory.path == "/":
                continue
            if path.endswith(".scope") or container(path) is not None:
                yield path, directory.inode
    except SourceAbsent:
        raise CommandError(f"{below}: no such cgroup any more") from None


def _is_empty(host: Host, directory: str) -> bool:
    """No process and no child."""
    try:
        if text(host.files, f"{directory}/cgroup.procs").strip():
            return False
        return host.files.status(directory).links <= 2
    except SourceError:  # a threaded one cannot be read: not ours to judge
        return False


def _age_s(directory: str, inode: int) -> float | None:
    """At least so old: cgroupfs makes up the times of a directory when it is first looked at."""
    try:
        found = os.lstat(directory)
    except OSError:
        return None
    return time.time() - found.st_mtime if found.st_ino == inode else None


def _held(host: Host, parent: Parent) -> int:
    name = "memory.current" if parent.version == 2 else "memory.usage_in_bytes"
    try:
        return number(host, f"{parent.directory}/{name}")
    except SourceError:
        return 0


def _empty(host: Host, parent: Parent, writer: Writer) -> Ordered | None:
    """Have it give up its pages; nobody else's are below it."""
    file = "memory.force_empty" if parent.version == 1 else "memory.reclaim"
    path = f"{parent.directory}/{file}"
    if not exists(host.files, path):
        return None
    value = "0" if parent.version == 1 else str(_held(host, parent))
    return writer.order(path, value, Terms(_EMPTY_S, off_the_nic(host).cpus))


def _elsewhere(host: Host, parent: Parent) -> list[str]:
    """The same path in the other hierarchies of v1."""
    if parent.version != 1:
        return []
    places = [f"{mount.mount_point}{parent.path}" for mount in cgroup_mounts(host)]
    return [each for each in places if each != parent.directory and exists(host.files, each)]


def _known_scopes(host: Host, names: list[str]) -> frozenset[str]:
    """Those that systemd has as units. Where it is there and does not answer, nothing is known."""
    asked = [name for name in names if UNIT_NAME.fullmatch(name)]
    if not asked or not exists(host.files, MARK):
        return frozenset()
    deadline = time.monotonic() + _ASK_S
    root, manager = "/org/freedesktop/systemd1", f"{SYSTEMD}.Manager"
    try:
        bus = open_bus(host, deadline)
        try:
            calls = [Call(root, manager, "GetUnit", "s", (name,)) for name in asked]
            answers = bus.calls(calls, deadline)
        finally:
            bus.close()
    except SourceError as error:
        raise CommandError(f"which scopes are systemd's could not be asked: {error}") from None
    return frozenset(
        name for name, answer in zip(asked, answers, strict=True) if not isinstance(answer, Refusal)
    )
