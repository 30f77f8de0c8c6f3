"""A unit's state, exactly; and the four things ever done to one, each with its way back.

*stop* asks systemd and waits. *disable* removes the links by which others start it, *mask* adds one
link to /dev/null, *override* one drop-in of ours. Links are removed by hand and not by ``systemctl
disable``, which goes on to every unit that ``Also=`` names, so that what is changed is exactly what
was shown and journalled. Nothing is overwritten, so the way back is short: what is gone is made
again, what we added is removed, and whatever somebody else changed meanwhile stays theirs.

*mask* where the unit's own file is in ``/etc/systemd/system`` cannot put its link there (systemctl
refuses it, too): it goes into ``/etc/systemd/system.control``, which systemd searches first.

What no undo brings back: the process's memory, ``NRestarts``, the state *failed*, and the moment it
was started.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from sexton.cure.entry import DIRECTORY, FILE, LINK, Entry, as_json, from_json, look, same_thing
from sexton.cure.unit_files import concerning, enabling
from sexton.cure.writer import Writer, unit_name
from sexton.errors import CommandError, SourceError
from sexton.host.host import Host, open_host
from sexton.model.text import printable
from sexton.sources.systemd.bus import SYSTEMD, Bus, Call, get, open_bus

ASK_S = 5.0
RELOAD_S = 60.0
STOP_S = 90.0
_PASSING_S = 2.0
MASK_DIRECTORIES = ("/etc/systemd/system", "/etc/systemd/system.control")
DROP_IN = "zz-sexton.conf"
_WRITTEN = "# Written by sexton fix; sexton fix rollback removes it.\n"
#: What an override may say. The first ends the loop and leaves the unit to be started by hand; the
#: second lets it loop, slowly; the third is what some guides advise, and lies: the unit seems fine.
OVERRIDES: Mapping[str, str] = {
    "no-restart": f"{_WRITTEN}[Service]\nRestart=no\n",
    "back-off": (
        f"{_WRITTEN}[Unit]\nStartLimitIntervalSec=1h\nStartLimitBurst=5\n"
        "[Service]\nRestartSec=60s\n"
    ),
    "true": f"{_WRITTEN}[Service]\nExecStart=\nExecStart=/bin/true\nRestart=no\n",
}
_ROOT = "/org/freedesktop/systemd1"
_MANAGER = f"{SYSTEMD}.Manager"
_UNIT = f"{SYSTEMD}.Unit"
_SERVICE = f"{SYSTEMD}.Service"
_RUNNING = ("active", "activating", "reloading")


@dataclass(frozen=True, slots=True)
class UnitBefore:
    """All that is needed to put a unit back. `entries` are the files, links and directories of
    `sexton.cure.unit_files`; `masked_by` is the one of them that masks it, if any; `unit_path` is
    where this systemd looks, the first wins."""

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
        places = [each for each in self.entries if each.path.rpartition("/")[2] in own]
        return next((each.path for each in places if each.masks), "")

    @property
    def running(self) -> bool:
        """Up, coming up, or waiting to restart."""
        return self.active_state in _RUNNING

    def has(self, path: str) -> bool:
        return any(entry.path == path for entry in self.entries)

    def as_json(self) -> dict[str, Any]:
        """For the journal."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**plain, "entries": [as_json(entry) for entry in self.entries]}


def before_from_json(value: Mapping[str, Any]) -> UnitBefore:
    """The inverse of `UnitBefore.as_json`; `CommandError` where it is none."""
    try:
        given = dict(value)
        entries = tuple(from_json(each) for each in given.pop("entries"))
        lists = ("names", "drop_ins", "triggered_by", "needed_by", "unit_path")
        given.update({name: tuple(given[name]) for name in lists})
        before = UnitBefore(**given, entries=entries)
        unit_name(before.name)
        unit_name(before.id)
    except (KeyError, TypeError, ValueError) as error:
        raise CommandError(f"the journal holds no unit where one was expected: {error}") from None
    return before


@dataclass(frozen=True, slots=True)
class Restored:
    """What a `restore` did: links and files made again, ours removed, others' changes left."""

    made: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    started: bool = False


def unit_state(name: str, host: Host | None = None) -> UnitBefore:
    """The unit as it is now, asked of systemd and read from its directories."""
    unit_name(name)
    deadline = time.monotonic() + ASK_S
    try:
        bus = open_bus(host or open_host(), deadline)
        try:
            told = _ask(bus, name, deadline)
            end = time.monotonic() + _PASSING_S
            # A crash loop passes through it between two starts; a unit that is being stopped will
            # be down. Either is told apart by waiting.
            while told.active_state == "deactivating" and time.monotonic() < end:
                time.sleep(0.02)
                told = _ask(bus, name, deadline)
        finally:
            bus.close()
    except SourceError as error:
        raise CommandError(f"{name}: systemd could not be asked: {error}") from None
    names = tuple(sorted({name, told.id, *told.names}))
    return replace(told, names=names, entries=tuple(concerning(names)))


def stop(unit: str | UnitBefore, writer: Writer, deadline_s: float = STOP_S) -> None:
    """Stop it as ``systemctl stop`` does: ExecStop, SIGTERM, and SIGKILL at its own timeout."""
    writer.systemctl("stop", _known(unit).id, deadline_s=deadline_s)


def disable(
    unit: str | UnitBefore, writer: Writer, deadline_s: float = RELOAD_S
) -> tuple[str, ...]:
    """Remove every link that has it started; their paths. A static unit has none."""
    gone = []
    for entry in enabling(_known(unit).entries):
        if look(entry.path) is not None:
            writer.remove_link(entry.path, entry.target)
            gone.append(entry.path)
    if gone:
        writer.systemctl("daemon-reload", deadline_s=deadline_s)
    return tuple(gone)


def mask_place(before: UnitBefore) -> str:
    """Where the mask's link would be; "" where it is masked for good already."""
    if before.masked_by.startswith("/etc/"):
        return ""
    higher = _higher(before)
    for directory in MASK_DIRECTORIES:
        path = f"{directory}/{before.id}"
        if directory in before.unit_path and directory not in higher and not before.has(path):
            return path
    raise CommandError(
        f"{before.id}: {printable(before.fragment)} comes before every place where a mask could be;"
        " an override is the way"
    )


def mask(unit: str | UnitBefore, writer: Writer, deadline_s: float = RELOAD_S) -> str:
    """Keep it from being started by anybody; the link's path, "" where it was masked."""
    before = _known(unit)
    path = mask_place(before)
    if not path:
        return ""
    found = look(path)
    if found is None:
        directory = path.rpartition("/")[0]
        if look(directory) is None:
            writer.make_directory(directory)
        writer.make_link(path, "/dev/null")
    elif not found.masks:
        raise CommandError(f"{path}: something is there already; left as it is")
    writer.systemctl("daemon-reload", deadline_s=deadline_s)
    return path


def override_place(before: UnitBefore) -> str:
    """Where our drop-in goes: last by name, so that it has the last word."""
    return f"/etc/systemd/system/{before.id}.d/{DROP_IN}"


def override(
    unit: str | UnitBefore, writer: Writer, what: str = "no-restart", deadline_s: float = RELOAD_S
) -> str:
    """Write one of `OVERRIDES` as a drop-in; its path."""
    before = _known(unit)
    if not before.id.endswith(".service"):
        raise CommandError(f"{before.id}: only a service has a restart policy to override")
    path, content = override_place(before), OVERRIDES[what].encode("ascii")
    found = look(path)
    if found is None:
        directory = path.rpartition("/")[0]
        if look(directory) is None:
            writer.make_directory(directory)
        writer.write_file(path, content)
    elif found.content != content:
        raise CommandError(f"{path}: something is there already; left as it is")
    writer.systemctl("daemon-reload", deadline_s=deadline_s)
    return path


def restore(before: UnitBefore, writer: Writer, deadline_s: float = RELOAD_S) -> Restored:
    """Put the unit back as it was before; may be called again, and after any half-way end."""
    made: list[str] = []
    removed: list[str] = []
    left: list[str] = []
    _remove_ours(before, writer, removed, left)
    for entry in before.entries:
        try:
            _make_again(entry, writer, made, left)
        except CommandError as error:  # the rest is put back all the same
            left.append(str(error))
    if made or removed or _is_out_of_date(before):
        writer.systemctl("daemon-reload", deadline_s=deadline_s)
    started = _start_again(before, writer, deadline_s)
    return Restored(tuple(made), tuple(removed), tuple(left), started)


def _is_out_of_date(before: UnitBefore) -> bool:
    """Does systemd still go by what we changed? So after an undo that was killed before its end."""
    now = unit_state(before.id)
    return (now.load_state, now.drop_ins, now.file_state, sorted(now.needed_by)) != (
        before.load_state,
        before.drop_ins,
        before.file_state,
        sorted(before.needed_by),
    )


def _remove_ours(before: UnitBefore, writer: Writer, removed: list[str], left: list[str]) -> None:
    """The mask and the drop-in, where they were not there before, and directories made for them."""
    drop_in = override_place(before)
    for path in (*(f"{directory}/{before.id}" for directory in MASK_DIRECTORIES), drop_in):
        try:
            writer.sweep(path)
            found = look(path)
            if found is None or before.has(path):
                continue
            if found.kind == LINK and found.masks and path != drop_in:
                writer.remove_link(path, found.target)
            elif path == drop_in and _is_override(found):
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
    found = look(entry.path)
    if found is not None:
        if not same_thing(found, entry):
            left.append(f"{entry.path}: changed by somebody else since; left as it is")
    elif _make(entry, writer):
        made.append(entry.path)
    else:
        left.append(f"{entry.path}: was a {entry.kind}, which cannot be made again")


def _is_override(entry: Entry) -> bool:
    ours = {content.encode("ascii") for content in OVERRIDES.values()}
    return entry.kind == FILE and entry.content in ours


def _is_empty(path: str) -> bool:
    found = look(path)
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


def _start_again(before: UnitBefore, writer: Writer, deadline_s: float) -> bool:
    """Not waited for: what crash-looped before does so again."""
    if not before.running or before.load_state != "loaded":
        return False
    now = unit_state(before.id)
    if now.running:
        return False
    if now.active_state == "failed":  # one that is not loaded has nothing to reset, and refuses
        writer.systemctl("reset-failed", before.id, deadline_s=deadline_s)
    writer.systemctl("start", "--no-block", before.id, deadline_s=deadline_s)
    return True


def _known(unit: str | UnitBefore) -> UnitBefore:
    return unit_state(unit) if isinstance(unit, str) else unit


def _higher(before: UnitBefore) -> frozenset[str]:
    """Directories that the unit's own file comes before, so that a mask there would not be seen."""
    home = before.fragment.rpartition("/")[0]
    if home not in before.unit_path:
        return frozenset()
    return frozenset(before.unit_path[before.unit_path.index(home) + 1 :])


def _ask(bus: Bus, name: str, deadline: float) -> UnitBefore:
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
    calls = [get(path, face, each) for face, each in wanted.values()]
    calls += [get(path, _UNIT, each) for each in needing]
    calls.append(get(_ROOT, _MANAGER, "UnitPath"))
    *values, unit_path = bus.properties(calls, deadline)
    told: dict[str, Any] = dict(zip(wanted, values, strict=False))
    if told["id"] is None or unit_path is None:
        raise CommandError(f"{name}: systemd knows no such unit")
    for key in ("load_state", "active_state", "sub_state", "file_state", "fragment"):
        told[key] = told[key] or ""
    for key in ("names", "drop_ins", "triggered_by"):
        told[key] = tuple(told[key] or ())
    told["control_group"] = told["control_group"] or ""
    timeout = told["stop_timeout_s"]
    told["stop_timeout_s"] = timeout / 1e6 if timeout and timeout < 2**63 else None
    needed = _joined(values[len(wanted) :])
    return UnitBefore(name=name, needed_by=needed, unit_path=tuple(unit_path), entries=(), **told)


def _joined(lists: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for found in lists for each in found or ()))
