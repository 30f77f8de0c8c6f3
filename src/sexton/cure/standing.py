"""How a unit stands: its names, what would stop with it, what starts it, what runs in it.

Read over D-Bus (org.freedesktop.systemd1(5)) and from the unit's own cgroup. Stopping a unit stops
every running one that `Requires=`, `Requisite=`, `BindsTo=` or is `PartOf=` it, and what hangs on
those: the whole of that is asked for, because a harmless unit may carry a protected one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sexton.cure.protected import Rule, why_protected
from sexton.errors import SourceAbsent, SourceError
from sexton.host.host import Host
from sexton.host.reader import text, walk
from sexton.model.text import printable
from sexton.sources.cgroupfs.layout import cgroup_mounts
from sexton.sources.systemd.bus import SYSTEMD, Bus, Call, get, open_bus

DEADLINE_S = 5.0
_ROOT = "/org/freedesktop/systemd1"
_MANAGER = f"{SYSTEMD}.Manager"
_UNIT = f"{SYSTEMD}.Unit"
_SERVICE = f"{SYSTEMD}.Service"
#: Relations by which a stop goes on to others.
_CARRIED = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf")
_MOST = 500
_MOST_PROCESSES = 2_000


@dataclass(frozen=True, slots=True)
class Standing:
    """One unit now. `stops_with_it` are running units that a stop would take along."""

    name: str
    names: tuple[str, ...]
    load_state: str
    active_state: str
    sub_state: str
    file_state: str
    fragment: str
    restarts: int | None
    cgroup: str
    can_stop: bool
    started_by: tuple[str, ...]
    wanted_by: tuple[str, ...]
    stops_with_it: tuple[str, ...]
    processes: tuple[tuple[int, str], ...]

    def protection(self, extra: Iterable[Rule] = ()) -> str:
        """Why it must be left alone: by a name, by what stops with it, by what runs in it."""
        rules = tuple(extra)
        for name in (self.name, *self.names):
            if (why := why_protected(name, rules)) is not None:
                return f"{printable(name)} is protected: {why}"
        if not self.can_stop:
            return f"{printable(self.name)} refuses to be stopped by hand (RefuseManualStop=)"
        for name in self.stops_with_it:
            if (why := why_protected(name, rules)) is not None:
                return f"{printable(name)} would stop with it and is protected: {why}"
        for pid, comm in self.processes:
            if (why := why_protected(comm, rules)) is not None:
                return f"{printable(comm)}[{pid}] runs in it and is protected: {why}"
        return ""


def stand(host: Host, name: str, deadline_s: float = DEADLINE_S) -> Standing:
    """Everything above, as of now; `SourceError` where systemd does not answer."""
    deadline = time.monotonic() + deadline_s
    bus = open_bus(host, deadline)
    try:
        path = _load(bus, name, deadline)
        wanted = (
            (_UNIT, "Id"), (_UNIT, "Names"), (_UNIT, "LoadState"), (_UNIT, "ActiveState"),
            (_UNIT, "SubState"), (_UNIT, "UnitFileState"), (_UNIT, "FragmentPath"),
            (_UNIT, "RefuseManualStop"), (_UNIT, "TriggeredBy"), (_UNIT, "WantedBy"),
            (_SERVICE, "NRestarts"), (_SERVICE, "ControlGroup"),
        )  # fmt: skip
        values = bus.properties([get(path, face, each) for face, each in wanted], deadline)
        found = {each: value for (_, each), value in zip(wanted, values, strict=True)}
        along = _carried(bus, name, deadline)
    finally:
        bus.close()
    cgroup = str(found["ControlGroup"] or "")
    restarts = found["NRestarts"]
    return Standing(
        name=str(found["Id"] or name),
        names=_texts(found["Names"]),
        load_state=str(found["LoadState"] or ""),
        active_state=str(found["ActiveState"] or ""),
        sub_state=str(found["SubState"] or ""),
        file_state=str(found["UnitFileState"] or ""),
        fragment=str(found["FragmentPath"] or ""),
        restarts=restarts if isinstance(restarts, int) else None,
        cgroup=cgroup,
        can_stop=found["RefuseManualStop"] is not True,
        started_by=_texts(found["TriggeredBy"]),
        wanted_by=_texts(found["WantedBy"]),
        stops_with_it=along,
        processes=tuple(_processes(host, cgroup)) if cgroup not in ("", "/") else (),
    )


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(sorted(each for each in value or () if isinstance(each, str)))


def _load(bus: Bus, name: str, deadline: float) -> str:
    """The object of a unit; asking for it loads its file where nothing did before."""
    body = bus.call(Call(_ROOT, _MANAGER, "LoadUnit", "s", (name,)), deadline)
    match body:
        case (str(path),):
            return path
    raise SourceAbsent(bus.via, f"no unit {printable(name)}")


def _carried(bus: Bus, name: str, deadline: float) -> tuple[str, ...]:
    """Running units that a stop of `name` would stop as well, however far away."""
    seen = {name}
    waiting = [name]
    running: list[str] = []
    while waiting and len(seen) < _MOST:
        path = _load(bus, waiting.pop(), deadline)
        asked = [get(path, _UNIT, relation) for relation in _CARRIED]
        for each in bus.properties(asked, deadline):
            for other in _texts(each):
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


def _processes(host: Host, cgroup: str) -> list[tuple[int, str]]:
    """Who runs in the unit, in whichever hierarchy systemd keeps its own books."""
    mounts = cgroup_mounts(host)
    ours = [each for each in mounts if "name=systemd" in each.super_options]
    ours += [each for each in mounts if each.fstype == "cgroup2"]
    found: list[tuple[int, str]] = []
    for mount in ours[:2]:
        top = f"{mount.mount_point.rstrip('/')}{cgroup}"
        try:
            places = [f"{top}{each.path}".rstrip("/") for each in walk(host.files, top)]
            pids = [
                int(pid)
                for place in places
                for pid in text(host.files, f"{place}/cgroup.procs").split()
            ]
        except SourceError:
            continue
        for pid in pids[:_MOST_PROCESSES]:
            try:
                found.append((pid, text(host.files, f"/proc/{pid}/comm").rstrip("\n")))
            except SourceError:
                continue  # it ended meanwhile
        break
    return found
