"""Systemd units: status, an exact snapshot, and the four changes made to one, each reversible.

*stop* calls systemd and waits. *disable* removes the links by which other units start it, *mask*
adds a link to /dev/null, *override* adds a drop-in. Links are removed one by one, not with
``systemctl disable``, which also changes every unit named in ``Also=``: what is changed is exactly
what was shown and journalled. Nothing is overwritten, so undo is simple: removed entries are
created again, added ones are removed, and changes made by others meanwhile are kept.

If the unit's own file is in ``/etc/systemd/system``, the mask cannot go there (systemctl refuses
too); it goes to ``/etc/systemd/system.control``, which systemd searches first.

Stopping a unit also stops every running one that `Requires=`, `Requisite=`, `BindsTo=` or is
`PartOf=` it, and so on down: `UnitStatus` follows these relations over D-Bus
(org.freedesktop.systemd1(5)), because a harmless unit may take a protected one down with it.

Undo cannot restore the process's memory, ``NRestarts``, the state *failed* or the start time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from sexton.cure.protected import Rule, why_protected
from sexton.cure.unit_files import (
    DIRECTORY,
    FILE,
    LINK,
    Entry,
    enabling_links,
    entry_from_json,
    entry_json,
    read_entry,
    same_content,
    unit_entries,
)
from sexton.cure.writer import Writer, unit_name
from sexton.errors import CommandError, SourceAbsent, SourceError
from sexton.host.host import Host, open_host
from sexton.host.reader import text, walk
from sexton.model.text import printable
from sexton.sources.cgroupfs.layout import cgroup_mounts
from sexton.sources.systemd.bus import SYSTEMD, Bus, Call, get, open_bus

#: For an answer of systemd on an overloaded node; less than `GRACE_S` of the lock.
ASK_S = 10.0
RELOAD_S = 60.0
STOP_S = 90.0
_PASSING_S = 5.0
MASK_DIRECTORIES = ("/etc/systemd/system", "/etc/systemd/system.control")
DROP_IN = "zz-sexton.conf"
#: Ends the loop and allows a manual start.
OVERRIDE = "# Written by sexton fix; sexton fix rollback removes it.\n[Service]\nRestart=no\n"
_ROOT = "/org/freedesktop/systemd1"
_MANAGER = f"{SYSTEMD}.Manager"
_UNIT = f"{SYSTEMD}.Unit"
_SERVICE = f"{SYSTEMD}.Service"
_RUNNING = ("active", "activating", "reloading")
#: Relations along which a stop propagates.
_STOP_RELATIONS = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf")
_MOST_RELATED = 500
_MOST_PROCESSES = 2_000


@dataclass(frozen=True, slots=True)
class UnitSnapshot:
    """Everything needed to restore a unit. `entries` are its files, links and directories
    (`sexton.cure.unit_files`), `masked_by` the one that masks it, if any; `unit_path` is systemd's
    search path, first match wins."""

    name: str
    id: str
    names: tuple[str, ...]
    load_state: str
    active_state: str
    sub_state: str
    file_state: str
    fragment: str
    drop_ins: tuple[str, ...]
    triggered_by: tuple[str, ...]
    needed_by: tuple[str, ...]
    control_group: str
    restarts: int | None
    stop_timeout_s: float | None
    unit_path: tuple[str, ...]
    entries: tuple[Entry, ...]

    @property
    def masked_by(self) -> str:
        own = {self.id, self.name}
        places = [entry for entry in self.entries if entry.path.rpartition("/")[2] in own]
        return next((place.path for place in places if place.masks), "")

    @property
    def running(self) -> bool:
        """Active, starting, or waiting to restart."""
        return self.active_state in _RUNNING

    def has(self, path: str) -> bool:
        return any(entry.path == path for entry in self.entries)

    def as_json(self) -> dict[str, Any]:
        """For the journal."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**plain, "entries": [entry_json(entry) for entry in self.entries]}


def snapshot_from_json(value: Mapping[str, Any]) -> UnitSnapshot:
    """The inverse of `UnitSnapshot.as_json`; `CommandError` if it is malformed."""
    try:
        given = dict(value)
        entries = tuple(entry_from_json(entry) for entry in given.pop("entries"))
        lists = ("names", "drop_ins", "triggered_by", "needed_by", "unit_path")
        given.update({name: tuple(given[name]) for name in lists})
        before = UnitSnapshot(**given, entries=entries)
        unit_name(before.name)
        unit_name(before.id)
    except (KeyError, TypeError, ValueError) as error:
        raise CommandError(f"malformed unit in the journal: {error}") from None
    return before


@dataclass(frozen=True, slots=True)
class Restored:
    """What `restore` did: entries created again, ours removed, changes by others kept."""

    made: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    started: bool = False


def snapshot_unit(name: str, host: Host | None = None) -> UnitSnapshot:
    """The unit as it is now, from systemd and its directories."""
    unit_name(name)
    deadline = time.monotonic() + ASK_S
    try:
        bus = open_bus(host or open_host(), deadline)
        try:
            found = _read_unit(bus, name, deadline)
            end = time.monotonic() + _PASSING_S
            # Wait: a crash loop passes through this state, a unit being stopped will leave it.
            while found.active_state == "deactivating" and time.monotonic() < end:
                time.sleep(0.02)
                found = _read_unit(bus, name, deadline)
        finally:
            bus.close()
    except SourceError as error:
        raise CommandError(f"{name}: systemd did not answer: {error}") from None
    names = tuple(sorted({name, found.id, *found.names}))
    return replace(found, names=names, entries=tuple(unit_entries(names)))


def stop(before: UnitSnapshot, writer: Writer, deadline_s: float = STOP_S) -> None:
    """Stop it as ``systemctl stop`` does: ExecStop, SIGTERM, and SIGKILL at its own timeout."""
    writer.systemctl("stop", before.id, deadline_s=deadline_s)


def disable(before: UnitSnapshot, writer: Writer, deadline_s: float = RELOAD_S) -> tuple[str, ...]:
    """Remove every link that starts it; returns their paths. A static unit has none."""
    gone = []
    for entry in enabling_links(before.entries):
        if read_entry(entry.path) is not None:
            writer.remove_link(entry.path, entry.target)
            gone.append(entry.path)
    if gone:
        writer.systemctl("daemon-reload", deadline_s=deadline_s)
    return tuple(gone)


def mask_place(before: UnitSnapshot) -> str:
    """Path for the mask link; "" if it is already masked in /etc."""
    if before.masked_by.startswith("/etc/"):
        return ""
    shadowed = _shadowed(before)
    for directory in MASK_DIRECTORIES:
        path = f"{directory}/{before.id}"
        if directory in before.unit_path and directory not in shadowed and not before.has(path):
            return path
    raise CommandError(
        f"{before.id}: {printable(before.fragment)} takes precedence over every possible mask;"
        " use --override"
    )


def mask(before: UnitSnapshot, writer: Writer, deadline_s: float = RELOAD_S) -> str:
    """Prevent every start; returns the link's path, "" if it was already masked."""
    path = mask_place(before)
    if not path:
        return ""
    found = read_entry(path)
    if found is None:
        _make_parent(path, writer)
        writer.make_link(path, "/dev/null")
    elif not found.masks:
        raise CommandError(f"{path}: already exists; not changed")
    writer.systemctl("daemon-reload", deadline_s=deadline_s)
    return path


def override_place(before: UnitSnapshot) -> str:
    """Path of our drop-in: it sorts last, so it wins."""
    return f"/etc/systemd/system/{before.id}.d/{DROP_IN}"


def override(before: UnitSnapshot, writer: Writer, deadline_s: float = RELOAD_S) -> str:
    """Write `OVERRIDE` as a drop-in; returns its path."""
    if not before.id.endswith(".service"):
        raise CommandError(f"{before.id}: only a service has a restart policy to override")
    path, content = override_place(before), OVERRIDE.encode("ascii")
    found = read_entry(path)
    if found is None:
        _make_parent(path, writer)
        writer.write_file(path, content)
    elif found.content != content:
        raise CommandError(f"{path}: already exists; not changed")
    writer.systemctl("daemon-reload", deadline_s=deadline_s)
    return path


def _make_parent(path: str, writer: Writer) -> None:
    directory = path.rpartition("/")[0]
    if read_entry(directory) is None:
        writer.make_directory(directory)


def restore(before: UnitSnapshot, writer: Writer) -> Restored:
    """Restore the unit; safe to repeat, also after a partial restore."""
    made: list[str] = []
    removed: list[str] = []
    left: list[str] = []
    _remove_ours(before, writer, removed, left)
    for entry in before.entries:
        try:
            _make_again(entry, writer, made, left)
        except CommandError as error:  # restore the rest anyway
            left.append(str(error))
    if made or removed or _is_out_of_date(before):
        writer.systemctl("daemon-reload", deadline_s=RELOAD_S)
    started = _start_again(before, writer)
    return Restored(tuple(made), tuple(removed), tuple(left), started)


def _is_out_of_date(before: UnitSnapshot) -> bool:
    """Whether systemd has yet to reload: true after an undo that was killed before its end."""
    now = snapshot_unit(before.id)
    return (now.load_state, now.drop_ins, now.file_state, sorted(now.needed_by)) != (
        before.load_state,
        before.drop_ins,
        before.file_state,
        sorted(before.needed_by),
    )


def _remove_ours(before: UnitSnapshot, writer: Writer, removed: list[str], left: list[str]) -> None:
    """Remove our mask and drop-in if they are new, and directories created for them."""
    drop_in = override_place(before)
    for path in (*(f"{directory}/{before.id}" for directory in MASK_DIRECTORIES), drop_in):
        try:
            writer.sweep(path)
            found = read_entry(path)
            if found is None or before.has(path):
                continue
            if found.kind == LINK and found.masks and path != drop_in:
                writer.remove_link(path, found.target)
            elif path == drop_in and found.kind == FILE and found.content == OVERRIDE.encode():
                writer.remove_file(path, found.content)
            else:
                continue
            removed.append(path)
        except CommandError as error:
            left.append(str(error))
    for directory in (drop_in.rpartition("/")[0], MASK_DIRECTORIES[1]):
        if not before.has(directory) and _is_empty(directory):
            writer.remove_directory(directory)
            removed.append(directory)


def _make_again(entry: Entry, writer: Writer, made: list[str], left: list[str]) -> None:
    found = read_entry(entry.path)
    if found is not None:
        if not same_content(found, entry):
            left.append(f"{entry.path}: changed since by someone else; kept")
    elif _make(entry, writer):
        made.append(entry.path)
    else:
        left.append(f"{entry.path}: was a {entry.kind}, cannot be created again")


def _is_empty(path: str) -> bool:
    found = read_entry(path)
    return found is not None and found.kind == DIRECTORY and not os.listdir(path)


def _make(entry: Entry, writer: Writer) -> bool:
    if entry.kind == LINK:
        writer.make_link(entry.path, entry.target, entry)
    elif entry.kind == FILE:
        writer.write_file(entry.path, entry.content, entry)
    elif entry.kind == DIRECTORY:
        writer.make_directory(entry.path, entry)
    else:
        return False
    return True


def _start_again(before: UnitSnapshot, writer: Writer) -> bool:
    """Start it if it was running; does not wait: a unit that crash-looped will do so again."""
    if not before.running or before.load_state != "loaded":
        return False
    now = snapshot_unit(before.id)
    if now.running:
        return False
    if now.active_state == "failed":  # systemd refuses to reset one that is not loaded
        writer.systemctl("reset-failed", before.id, deadline_s=RELOAD_S)
    writer.systemctl("start", "--no-block", before.id, deadline_s=RELOAD_S)
    return True


def _shadowed(before: UnitSnapshot) -> frozenset[str]:
    """Directories searched after the unit's own file: a mask there has no effect."""
    home = before.fragment.rpartition("/")[0]
    if home not in before.unit_path:
        return frozenset()
    return frozenset(before.unit_path[before.unit_path.index(home) + 1 :])


def _read_unit(bus: Bus, name: str, deadline: float) -> UnitSnapshot:
    (path,) = bus.call(Call(_ROOT, _MANAGER, "LoadUnit", "s", (name,)), deadline)
    wanted = {
        "id": (_UNIT, "Id"),
        "names": (_UNIT, "Names"),
        "load_state": (_UNIT, "LoadState"),
        "active_state": (_UNIT, "ActiveState"),
        "sub_state": (_UNIT, "SubState"),
        "file_state": (_UNIT, "UnitFileState"),
        "fragment": (_UNIT, "FragmentPath"),
        "drop_ins": (_UNIT, "DropInPaths"),
        "triggered_by": (_UNIT, "TriggeredBy"),
        "control_group": (_SERVICE, "ControlGroup"),
        "restarts": (_SERVICE, "NRestarts"),
        "stop_timeout_s": (_SERVICE, "TimeoutStopUSec"),
    }
    needing = ("RequiredBy", "RequisiteOf", "BoundBy", "WantedBy", "UpheldBy")
    calls = [get(path, face, attribute) for face, attribute in wanted.values()]
    calls += [get(path, _UNIT, word) for word in needing]
    calls.append(get(_ROOT, _MANAGER, "UnitPath"))
    *values, unit_path = bus.properties(calls, deadline)
    found: dict[str, Any] = dict(zip(wanted, values, strict=False))
    if found["id"] is None or unit_path is None:
        raise CommandError(f"{name}: no such unit")
    for key in ("load_state", "active_state", "sub_state", "file_state", "fragment"):
        found[key] = found[key] or ""
    for key in ("names", "drop_ins", "triggered_by"):
        found[key] = tuple(found[key] or ())
    found["control_group"] = found["control_group"] or ""
    timeout = found["stop_timeout_s"]
    found["stop_timeout_s"] = timeout / 1e6 if timeout and timeout < 2**63 else None
    needed = _joined(values[len(wanted) :])
    return UnitSnapshot(
        name=name, needed_by=needed, unit_path=tuple(unit_path), entries=(), **found
    )


def _joined(lists: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for found in lists for name in found or ()))


@dataclass(frozen=True, slots=True)
class UnitStatus:
    """One unit now. `stops_with_it` are running units that would stop with it."""

    name: str
    names: tuple[str, ...]
    load_state: str
    active_state: str
    file_state: str
    fragment: str
    restarts: int | None
    can_stop: bool
    started_by: tuple[str, ...]
    stops_with_it: tuple[str, ...]
    processes: tuple[tuple[int, str], ...]

    def protection(self, extra: Iterable[Rule] = ()) -> str:
        """Why it must not be stopped: its name, units that stop with it, or its processes."""
        rules = tuple(extra)
        for name in (self.name, *self.names):
            if (why := why_protected(name, rules)) is not None:
                return f"{printable(name)} is protected: {why}"
        if not self.can_stop:
            return f"{printable(self.name)} cannot be stopped manually (RefuseManualStop=)"
        for name in self.stops_with_it:
            if (why := why_protected(name, rules)) is not None:
                return f"{printable(name)} would stop with it and is protected: {why}"
        for pid, comm in self.processes:
            if (why := why_protected(comm, rules)) is not None:
                return f"{printable(comm)}[{pid}] runs in it and is protected: {why}"
        return ""


def unit_status(host: Host, name: str) -> UnitStatus:
    """The status now; `SourceError` if systemd does not answer."""
    deadline = time.monotonic() + ASK_S
    bus = open_bus(host, deadline)
    try:
        path = _load(bus, name, deadline)
        wanted = (
            (_UNIT, "Id"), (_UNIT, "Names"), (_UNIT, "LoadState"), (_UNIT, "ActiveState"),
            (_UNIT, "UnitFileState"), (_UNIT, "FragmentPath"), (_UNIT, "RefuseManualStop"),
            (_UNIT, "TriggeredBy"), (_SERVICE, "NRestarts"), (_SERVICE, "ControlGroup"),
        )  # fmt: skip
        values = bus.properties(
            [get(path, face, attribute) for face, attribute in wanted], deadline
        )
        found = {attribute: value for (_, attribute), value in zip(wanted, values, strict=True)}
        also_stopped = _stopped_with(bus, name, deadline)
    finally:
        bus.close()
    cgroup = str(found["ControlGroup"] or "")
    restarts = found["NRestarts"]
    return UnitStatus(
        name=str(found["Id"] or name),
        names=_texts(found["Names"]),
        load_state=str(found["LoadState"] or ""),
        active_state=str(found["ActiveState"] or ""),
        file_state=str(found["UnitFileState"] or ""),
        fragment=str(found["FragmentPath"] or ""),
        restarts=restarts if isinstance(restarts, int) else None,
        can_stop=found["RefuseManualStop"] is not True,
        started_by=_texts(found["TriggeredBy"]),
        stops_with_it=also_stopped,
        processes=tuple(_processes(host, cgroup)) if cgroup not in ("", "/") else (),
    )


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(sorted(line for line in value or () if isinstance(line, str)))


def _load(bus: Bus, name: str, deadline: float) -> str:
    """The unit's D-Bus object; LoadUnit loads its file if necessary."""
    body = bus.call(Call(_ROOT, _MANAGER, "LoadUnit", "s", (name,)), deadline)
    match body:
        case (str(path),):
            return path
    raise SourceAbsent(bus.via, f"no unit {printable(name)}")


def _stopped_with(bus: Bus, name: str, deadline: float) -> tuple[str, ...]:
    """Running units that stopping `name` would stop too, directly or indirectly."""
    seen = {name}
    waiting = [name]
    running: list[str] = []
    while waiting and len(seen) < _MOST_RELATED:
        path = _load(bus, waiting.pop(), deadline)
        calls = [get(path, _UNIT, relation) for relation in _STOP_RELATIONS]
        for answer in bus.properties(calls, deadline):
            for other in _texts(answer):
                if other in seen:
                    continue
                seen.add(other)
                (state,) = bus.properties(
                    [get(_load(bus, other, deadline), _UNIT, "ActiveState")], deadline
                )
                if state in ("active", "activating", "reloading", "deactivating"):
                    running.append(other)
                    waiting.append(other)
    return tuple(sorted(running))


def _is_fork_of_systemd(host: Host, pid: int) -> bool:
    """Whether it is about to execute the unit's program: until then it has systemd's own name,
    which is protected, and a crash loop is often caught so. A container's init or a user's systemd
    has another parent or another command line."""
    try:
        own = text(host.files, "/proc/1/cmdline")
    except SourceError:
        return False  # unknown: it stays protected
    after_comm = text(host.files, f"/proc/{pid}/stat").rpartition(")")[2].split()
    return after_comm[1:2] == ["1"] and text(host.files, f"/proc/{pid}/cmdline") == own


def _processes(host: Host, cgroup: str) -> list[tuple[int, str]]:
    """Processes of the unit, from the hierarchy that systemd manages."""
    mounts = cgroup_mounts(host)
    ours = [mount for mount in mounts if "name=systemd" in mount.super_options]
    ours += [mount for mount in mounts if mount.fstype == "cgroup2"]
    found: list[tuple[int, str]] = []
    for mount in ours[:2]:
        top = f"{mount.mount_point.rstrip('/')}{cgroup}"
        try:
            places = [f"{top}{node.path}".rstrip("/") for node in walk(host.files, top)]
            pids = [
                int(pid)
                for place in places
                for pid in text(host.files, f"{place}/cgroup.procs").split()
            ]
        except SourceError:
            continue
        for pid in pids[:_MOST_PROCESSES]:
            try:
                comm = text(host.files, f"/proc/{pid}/comm").rstrip("\n")
                if not _is_fork_of_systemd(host, pid):
                    found.append((pid, comm))
            except SourceError:
                continue  # it exited meanwhile
        break
    return found
