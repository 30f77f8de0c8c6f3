"""Remove empty live cgroups: scopes and containers whose directories were left behind.

They are not zombies, but the kernel walks them too. One that systemd knows is stopped as a unit;
any other is removed by `rmdir`, which the kernel refuses if a process is in it. Its pages are
reclaimed first: a cgroup removed with pages still charged to it becomes a zombie.

Only scopes and containers without children and processes are removed, and only if certainly older
than `YOUNGEST_S` (a directory's times may be newer than the directory, never older). Undo cannot
restore their limits and counters; a new directory with the same name would be another cgroup.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from shlex import quote
from typing import Any, NamedTuple

from sexton.cure import units
from sexton.cure.protected import Rule, why_protected
from sexton.cure.reclaim.count import Parent
from sexton.cure.remedy import StepContext, nothing_to_undo, text_parameter
from sexton.cure.writer import UNIT_NAME, WriteLimits, Writer
from sexton.detect.stems import container, split
from sexton.errors import CommandError, SourceAbsent, SourceError
from sexton.host.host import Host
from sexton.host.reader import exists, text, walk
from sexton.model.plan import Condition, Criterion, Step
from sexton.model.text import count, seconds
from sexton.sources.cgroupfs.estimate import number
from sexton.sources.cgroupfs.layout import cgroup_mounts, read_layout
from sexton.sources.cores import off_the_nic
from sexton.sources.systemd.bus import SYSTEMD, Call, Refusal, open_bus
from sexton.sources.systemd.units import MARK

#: PROC_PID_INIT_INO in include/linux/proc_ns.h.
FIRST_PID_NAMESPACE = "pid:[4026531836]"
YOUNGEST_S = 600.0
MOST_FOUND = 20_000
STOP, REMOVE = "systemctl stop", "rmdir"
_EMPTY_S = 2.0
_INIT = "/init.scope"
NAME = "remove_empty_cgroups"
RECLAIMS = False
undo = nothing_to_undo
#: Per step, so that the plan stays readable. Another plan takes the next.
MOST = 500
_SHOWN = 3


class EmptyCgroup(NamedTuple):
    """An empty live cgroup. `how` is `STOP` for a scope known to systemd, else `REMOVE`."""

    path: str
    inode: int
    held_bytes: int
    age_s: float
    how: str

    @property
    def name(self) -> str:
        return split(self.path)[1]


class Removed(NamedTuple):
    """Result for one. `held_bytes` is what it held when it was removed: more than 0 may have left
    a zombie."""

    path: str
    how: str
    held_bytes: int


def find_empty_cgroups(
    host: Host, below: str = "/", youngest_s: float = YOUNGEST_S, extra: Iterable[Rule] = ()
) -> tuple[EmptyCgroup, ...]:
    """Empty scopes and containers below a live cgroup, oldest first."""
    host.require_live(below)
    rules = tuple(extra)
    layout = read_layout(host)
    if layout.mount_point is None:
        raise CommandError(layout.reason or "no memory hierarchy here")
    if not layout.comparable:
        raise CommandError(f"{layout.reason}: cannot tell which cgroups are empty; {layout.advice}")
    if host.files.link("/proc/self/ns/pid") != FIRST_PID_NAMESPACE:
        # v1 hides processes of other PID namespaces entirely.
        raise CommandError("in a PID namespace: cannot tell which cgroups are empty")
    found = []
    for path, inode in _candidates(host, f"{layout.mount_point}{below.rstrip('/')}", below):
        name = split(path)[1]
        # A container's scope is named after its protected runtime, but an empty one is not.
        kept = any(fnmatchcase(name, rule.name) for rule in rules)
        if path == _INIT or kept or (container(path) is None and why_protected(name)):
            continue
        parent = Parent(path, layout)
        age_s = _age_s(parent.directory, inode)
        if age_s is None or age_s < youngest_s or not _is_empty(host, parent.directory):
            continue
        found.append(EmptyCgroup(path, inode, _held(host, parent), age_s, REMOVE))
        if len(found) == MOST_FOUND:
            break
    known = _known_scopes(host, [cgroup.name for cgroup in found if cgroup.name.endswith(".scope")])
    marked = [cgroup._replace(how=STOP) if cgroup.name in known else cgroup for cgroup in found]
    return tuple(sorted(marked, key=lambda cgroup: -cgroup.age_s))


def remove(host: Host, cgroup: EmptyCgroup, writer: Writer) -> Removed:
    """Remove one; refused if it was replaced or is no longer empty."""
    layout = read_layout(host)
    parent = Parent(cgroup.path, layout)
    try:
        inode = host.files.status(parent.directory).inode
    except SourceAbsent:
        return Removed(cgroup.path, "already gone", 0)
    if inode != cgroup.inode:
        raise CommandError(f"{cgroup.path}: replaced by a new cgroup; not removed")
    if not _is_empty(host, parent.directory):
        raise CommandError(f"{cgroup.path}: no longer empty; not removed")
    if cgroup.how == STOP:
        writer.systemctl("stop", cgroup.name)
        return Removed(cgroup.path, STOP, 0)
    if _held(host, parent):
        _empty(host, parent, writer)
    held = _held(host, parent)
    writer.remove_cgroup(parent.directory)
    for directory in _other_hierarchies(host, parent):
        if _is_empty(host, directory):
            writer.remove_cgroup(directory)
    return Removed(cgroup.path, REMOVE, held)


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
        raise CommandError(f"{below}: cgroup no longer exists") from None


def _is_empty(host: Host, directory: str) -> bool:
    """No process and no child."""
    try:
        if text(host.files, f"{directory}/cgroup.procs").strip():
            return False
        return host.files.status(directory).links <= 2
    except SourceError:  # a threaded cgroup cannot be read
        return False


def _age_s(directory: str, inode: int) -> float | None:
    """Minimum age: cgroupfs invents a directory's times when it is first accessed."""
    try:
        found = os.lstat(directory)
    except OSError:
        return None
    return time.time() - found.st_mtime if found.st_ino == inode else None


def _held(host: Host, parent: Parent) -> int:
    try:
        return number(host, f"{parent.directory}/{parent.usage_file}")
    except SourceError:
        return 0


def _empty(host: Host, parent: Parent, writer: Writer) -> None:
    """Reclaim its pages, if the kernel can; nothing else is below it."""
    path = f"{parent.directory}/{parent.reclaim_file}"
    if exists(host.files, path):
        value = "0" if parent.version == 1 else str(_held(host, parent))
        writer.write_control(path, value, WriteLimits(_EMPTY_S, off_the_nic(host).cpus))


def _other_hierarchies(host: Host, parent: Parent) -> list[str]:
    """The same path in the other hierarchies of v1."""
    if parent.version != 1:
        return []
    places = [f"{mount.mount_point}{parent.path}" for mount in cgroup_mounts(host)]
    return [place for place in places if place != parent.directory and exists(host.files, place)]


def _known_scopes(host: Host, names: list[str]) -> frozenset[str]:
    """Scopes that systemd has as units; `CommandError` if systemd runs but does not answer."""
    scopes = [name for name in names if UNIT_NAME.fullmatch(name)]
    if not scopes or not exists(host.files, MARK):
        return frozenset()
    deadline = time.monotonic() + units.ASK_S
    root, manager = "/org/freedesktop/systemd1", f"{SYSTEMD}.Manager"
    try:
        bus = open_bus(host, deadline)
        try:
            calls = [Call(root, manager, "GetUnit", "s", (name,)) for name in scopes]
            answers = bus.calls(calls, deadline)
        finally:
            bus.close()
    except SourceError as error:
        raise CommandError(f"could not list systemd's scopes: {error}") from None
    return frozenset(
        name
        for name, answer in zip(scopes, answers, strict=True)
        if not isinstance(answer, Refusal)
    )


def propose(identity: str, found: Sequence[EmptyCgroup]) -> Step:
    """`found` is sorted oldest first; at most `MOST` are taken."""
    chosen = tuple(found[:MOST])
    names = ", ".join(cgroup.path for cgroup in chosen[:_SHOWN])
    more = f" and {len(chosen) - _SHOWN} more" if len(chosen) > _SHOWN else ""
    left = f"; {len(found) - len(chosen):,} are left for another plan" if len(found) > MOST else ""
    many = count(len(chosen), "empty cgroup")
    return Step(
        id=identity,
        remedy=NAME,
        title=f"remove {many}",
        target="empty cgroups",
        risk="low",
        risk_why="each is checked again first: no process, no child, same directory, older than"
        f" {seconds(YOUNGEST_S)}; the kernel refuses one that is in use",
        preconditions=(
            Condition(f"the oldest of them, {chosen[0].path}", "its inode", str(chosen[0].inode),
                      "they were cleaned up since", f"cgroup.memory_inode {chosen[0].path}"),
        ),
        effect=f"removes {names}{more}{left}",
        cannot_undo="their limits and counters",
        undo="none: a new cgroup of the same name would be another one",
        proof=(Criterion("each is gone", "their directories", "<=", 0, "left"),),
        commands=tuple(_command(cgroup) for cgroup in chosen[:20])
        + ((f"# and {len(chosen) - 20} more",) if len(chosen) > 20 else ()),
        parameters={"leftovers": json.dumps([list(cgroup) for cgroup in chosen])},
    )  # fmt: skip


def _command(cgroup: EmptyCgroup) -> str:
    if cgroup.how == STOP:
        return f"systemctl stop {quote(cgroup.name)}"
    return f"rmdir /sys/fs/cgroup{quote(cgroup.path)}   # v1: in every hierarchy that has it"


def planned(step: Step) -> int:
    """How many the step is to remove."""
    return len(_parsed(step))


def _parsed(step: Step) -> list[EmptyCgroup]:
    try:
        rows = json.loads(text_parameter(step, "leftovers"))
        found = [
            EmptyCgroup(str(path), int(inode), int(held), float(age), str(how))
            for path, inode, held, age, how in rows
        ]
    except (ValueError, TypeError):
        raise CommandError(f"step {step.id}: malformed list of cgroups") from None
    for how, path in ((cgroup.how, cgroup.path) for cgroup in found):
        if how not in (STOP, REMOVE) or not path.startswith("/") or ".." in path:
            raise CommandError(f"step {step.id}: malformed list of cgroups")
    return found


def prepare(step: Step, context: StepContext) -> dict[str, Any]:
    """Nothing can be restored; the removed paths are journalled."""
    mount = read_layout(context.host).mount_point
    return {"mount_point": mount, "removed": [cgroup.path for cgroup in _parsed(step)]}


def carry_out(step: Step, context: StepContext) -> dict[str, Any]:
    every = _parsed(step)
    removed, left, held = 0, [], 0
    for cgroup in every:
        if why := context.stop():
            left.append(why)
            break
        try:
            done = remove(context.host, cgroup, context.writer)
        except (CommandError, SourceError) as error:
            left.append(str(error))
            continue
        removed += 1
        held += done.held_bytes > 0
    said = f"removed {count(removed, 'empty cgroup')}"
    if left:
        said += f"; {len(left):,} not removed, first: {left[0]}"
    if held:
        said += f"; {held:,} still held pages and may be zombies now"
    proven = [removed == len(every), f"{removed:,} of {len(every):,} removed"]
    return {"said": said, "removed": removed, "left": left[:20], "proven": proven}


def left_of(host: Host, step: Step) -> int:
    """How many of the step's cgroups are still there: the same directories, not new ones."""
    layout = read_layout(host)
    left = 0
    for cgroup in _parsed(step):
        with contextlib.suppress(SourceAbsent):
            status = host.files.status(Parent(cgroup.path, layout).directory)
            left += status.inode == cgroup.inode
    return left
