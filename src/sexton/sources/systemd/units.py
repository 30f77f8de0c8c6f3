"""State and restarts of systemd services and timers, over D-Bus.

Documented in org.freedesktop.systemd1(5). One ``ListUnitsByPatterns`` gives every unit's state;
other properties are read by name, many calls in flight. busctl on a unit in a crash loop::

    .Restart                        property  s  "always"
    .RestartUSec                    property  t  100000
    .NRestarts                      property  u  97
    .ControlGroup                   property  s  ""
    .ExecMainStartTimestampMonotonic property t  83590519

Quirks: ``GetAll`` on 200 units costs 1.8 s, named ``Get`` calls 76 ms, so `GetAll` is never used. A
unit in a crash loop is ``activating (auto-restart)``, not ``failed``, and has no ``ControlGroup``
then (see `systemd.show`). ``NRestarts`` came with systemd 235; it ignores manual restarts and can
go down (`sexton.detect.restarts`). A unit may disappear between listing and reading.

To keep it cheap, only ``NRestarts`` is read of inactive units, and from the second reading on also
of every unit that never restarted and that no timer starts: its other values are the first
reading's. If the deadline passes after the counters were read, the rest is unknown, not stale.

A node without systemd gives one `ServiceManager` row with the name of its PID 1 and no units. In a
PID namespace, where the node's PID 1 is not visible, the source is absent instead.

>>> repeat_us([("OnBootUSec", 5, 0), ("OnUnitActiveUSec", 3_600_000_000, 0)])
3600000000
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sexton.errors import SourceAbsent, SourceDenied, SourceError, SourceMalformed, SourceTimeout
from sexton.host.host import Host
from sexton.host.reader import exists, text
from sexton.model.row import Row
from sexton.model.rows.unit import ServiceManager, Timer, Unit
from sexton.sources.registry import Reading, source
from sexton.sources.systemd import show
from sexton.sources.systemd.bus import SYSTEMD, Bus, Call, get, open_bus
from sexton.sources.systemd.show import UNKNOWN, locate

DEADLINE_S = 3.0
#: More services than any known node has; beyond it inactive ones are left out.
MOST_UNITS = 2_000
MARK = "/run/systemd/system"
_ROOT = "/org/freedesktop/systemd1"
_MANAGER = f"{SYSTEMD}.Manager"
_VERSION = "/commands/systemctl_version"
#: The initial PID namespace's inode, PROC_PID_INIT_INO in include/linux/proc_ns.h.
_FIRST_PID_NAMESPACE = "pid:[4026531836]"

#: The properties read, and the `Unit` field each becomes. `_MOVING` ones change with a restart.
_SERVICE = f"{SYSTEMD}.Service"
_UNIT = f"{SYSTEMD}.Unit"
_MOVING = (
    (_SERVICE, "ExecMainStartTimestampMonotonic", "main_start_us", int),
    (_SERVICE, "ExecMainExitTimestampMonotonic", "main_exit_us", int),
    (_SERVICE, "ExecMainStatus", "exit_status", int),
    (_SERVICE, "Result", "result", str),
    (_SERVICE, "ControlGroup", "cgroup", str),
    (_UNIT, "ActiveEnterTimestampMonotonic", "active_enter_us", int),
)
_FIXED = (
    (_SERVICE, "Restart", "restart_policy", str),
    (_SERVICE, "RestartUSec", "restart_delay_us", int),
    (_UNIT, "UnitFileState", "file_state", str),
)
_UNKNOWN_FIELDS: dict[str, Any] = {
    **dict.fromkeys(field for _, _, field, _ in _MOVING),
    "cgroup_origin": UNKNOWN,
}
_UNREAD = _UNKNOWN_FIELDS | dict.fromkeys(field for _, _, field, _ in _FIXED)
_INFINITY = 2**64 - 1


class _Listed(NamedTuple):
    """One line of ``ListUnits``."""

    name: str
    load_state: str
    active_state: str
    sub_state: str
    path: str

    @property
    def awake(self) -> bool:
        return self.active_state != "inactive"


@source(
    "org.freedesktop.systemd1",
    rows=(ServiceManager, Unit, Timer),
    period_s=5.0,
    deadline_s=DEADLINE_S,
    grant="sudo sexton diagnose  # on the node; in a pod: with its /run/dbus mounted, read-only",
)
class Units(Reading):
    """Services and timers; keeps one connection open."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._bus: Bus | None = None
        self._version: str | None = None
        self._units: dict[str, Unit] = {}
        self._timers: dict[str, Timer] = {}
        #: The last cgroup path that systemd reported for each unit.
        self._cgroups: dict[str, str] = {}

    def collect(self) -> Iterable[Row]:
        deadline = time.monotonic() + DEADLINE_S
        if not self._host.live and exists(self._files, show.PATH):
            return list(self._from_show())
        if not exists(self._files, MARK):
            return [self._other_manager()]
        try:
            return self._read(deadline)
        except SourceError:
            self.close()  # after a failure replies may be out of step: reconnect next time
            raise

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    def _from_show(self) -> Iterator[Row]:
        version = None
        if exists(self._files, _VERSION):
            words = text(self._files, _VERSION).split(maxsplit=2)
            version = words[1] if len(words) > 1 else None
        rows = list(show.parse(text(self._files, show.PATH)))
        if not rows:
            raise SourceMalformed(show.PATH, 0, "no units: systemctl failed")
        yield ServiceManager("systemd", version, show.PATH)
        for row in rows:
            yield self._with_last_cgroup(row) if isinstance(row, Unit) else row

    def _other_manager(self) -> ServiceManager:
        name = text(self._files, "/proc/1/comm").rstrip("\n")
        if name == "systemd":
            raise SourceDenied(MARK, "PID 1 is systemd, but its /run is not visible from here")
        space = _link(self._host, "/proc/self/ns/pid") if self._host.live else _FIRST_PID_NAMESPACE
        if space != _FIRST_PID_NAMESPACE:
            raise SourceAbsent(MARK, "in a PID namespace: the node's PID 1 is not visible")
        return ServiceManager(name, None, "/proc/1/comm")

    def _read(self, deadline: float) -> list[Row]:
        if self._bus is None:
            self._bus = open_bus(self._host, deadline)
            (self._version,) = self._bus.properties([get(_ROOT, _MANAGER, "Version")], deadline)
        bus = self._bus
        listed = _listed(bus, deadline)
        services = sorted(
            (unit for unit in listed if unit.name.endswith(".service")),
            key=lambda unit: not unit.awake,
        )[:MOST_UNITS]
        timers = [unit for unit in listed if unit.name.endswith(".timer") and unit.awake]
        timer_rows = self._read_timers(bus, timers[:MOST_UNITS], deadline)
        units = self._services(bus, services, deadline)
        manager = ServiceManager("systemd", self._version, bus.via)
        return [manager, *(units[unit.name] for unit in services), *timer_rows]

    def _services(self, bus: Bus, listed: list[_Listed], deadline: float) -> dict[str, Unit]:
        loaded = [unit for unit in listed if unit.load_state == "loaded"]
        counts = bus.properties([get(u.path, _SERVICE, "NRestarts") for u in loaded], deadline)
        restarts = {
            unit.name: _typed(count, int) for unit, count in zip(loaded, counts, strict=True)
        }
        units = {unit.name: self._known(unit, restarts.get(unit.name)) for unit in listed}
        wanted = [unit for unit in loaded if self._needs_reading(unit, restarts[unit.name])]
        try:
            self._fill(bus, wanted, units, deadline)
        except SourceTimeout:  # the counters alone are useful; the next reading tries again
            self.close()
            units |= {unit.name: self._without_moving(units[unit.name]) for unit in wanted}
        self._units = units
        return units

    def _known(self, listed: _Listed, restarts: int | None) -> Unit:
        """The listed state, on top of an earlier reading's values."""
        load, active, sub = listed.load_state, listed.active_state, listed.sub_state
        before = self._units.get(listed.name)
        if before is None:
            return Unit(listed.name, load, active, sub, restarts=restarts, **_UNREAD)
        return replace(
            before, load_state=load, active_state=active, sub_state=sub, restarts=restarts
        )

    def _needs_reading(self, listed: _Listed, restarts: int | None) -> bool:
        before = self._units.get(listed.name)
        if restarts or listed.active_state in ("activating", "deactivating", "failed"):
            return True
        if any(timer.unit == listed.name for timer in self._timers.values()):
            return True  # it starts and stops without a restart
        if before is None or before.main_start_us is None:
            return listed.awake
        return (before.active_state, before.restarts) != (listed.active_state, restarts)

    def _fill(
        self, bus: Bus, listed: list[_Listed], units: dict[str, Unit], deadline: float
    ) -> None:
        """Replace the rows of these units by full ones."""
        wanted = []
        for unit in listed:
            fixed = () if units[unit.name].restart_policy else _FIXED
            wanted += [(unit, *item) for item in (*_MOVING, *fixed)]
        values = bus.properties([get(u.path, face, name) for u, face, name, *_ in wanted], deadline)
        changes: dict[str, dict[str, Any]] = {unit.name: {} for unit in listed}
        for (unit, _, _, field, kind), value in zip(wanted, values, strict=True):
            changes[unit.name][field] = _typed(value, kind)
        unplaced = [
            u for u in listed if not changes[u.name]["cgroup"] and u.name not in self._cgroups
        ]
        slices = bus.properties([get(u.path, _SERVICE, "Slice") for u in unplaced], deadline)
        slice_of = {u.name: _typed(value, str) for u, value in zip(unplaced, slices, strict=True)}
        for unit in listed:
            found = changes[unit.name]
            found["cgroup"], found["cgroup_origin"] = locate(
                found["cgroup"], slice_of.get(unit.name), unit.name
            )
            units[unit.name] = self._with_last_cgroup(replace(units[unit.name], **found))

    def _without_moving(self, unit: Unit) -> Unit:
        """Without the moving values, which would be an earlier reading's."""
        return self._with_last_cgroup(replace(unit, **_UNKNOWN_FIELDS))

    def _with_last_cgroup(self, unit: Unit) -> Unit:
        """With its last known cgroup path, if systemd reports none now."""
        if unit.cgroup is not None and unit.cgroup_origin == show.SYSTEMD:
            self._cgroups[unit.name] = unit.cgroup
        elif known := self._cgroups.get(unit.name):
            return replace(unit, cgroup=known, cgroup_origin=show.LAST_KNOWN)
        return unit

    def _read_timers(self, bus: Bus, listed: list[_Listed], deadline: float) -> list[Timer]:
        face = f"{SYSTEMD}.Timer"
        fresh = [unit for unit in listed if unit.name not in self._timers]
        names = ("Unit", "TimersMonotonic", "LastTriggerUSec", "NextElapseUSecRealtime")
        fixed = bus.properties([get(u.path, face, name) for u in fresh for name in names], deadline)
        for index, unit in enumerate(fresh):
            target, repeats, last, following = fixed[4 * index : 4 * index + 4]
            interval = repeat_us(repeats) or _calendar_us(last, following)
            target = _typed(target, str) or unit.name.removesuffix(".timer") + ".service"
            self._timers[unit.name] = Timer(unit.name, target, None, interval)
        moved = bus.properties(
            [get(u.path, face, "LastTriggerUSecMonotonic") for u in listed], deadline
        )
        return [
            replace(self._timers[unit.name], last_trigger_us=_typed(last, int))
            for unit, last in zip(listed, moved, strict=True)
        ]


def repeat_us(settings: Any) -> int | None:
    """The shortest period among a timer's ``TimersMonotonic`` settings that repeat."""
    repeats = [
        value
        for name, value, *_ in settings or ()
        if name in ("OnUnitActiveUSec", "OnUnitInactiveUSec") and 0 < value < _INFINITY
    ]
    return min(repeats, default=None)


def _calendar_us(last: Any, following: Any) -> int | None:
    """``OnCalendar`` has no period: use the time from the last run to the next."""
    before, after = _typed(last, int), _typed(following, int)
    return after - before if before and after and after > before else None


def _listed(bus: Bus, deadline: float) -> list[_Listed]:
    patterns: tuple[list[str], list[str]] = ([], ["*.service", "*.timer"])
    try:
        body = bus.call(Call(_ROOT, _MANAGER, "ListUnitsByPatterns", "asas", patterns), deadline)
    except SourceAbsent:  # systemd before 230 has no such method
        body = bus.call(Call(_ROOT, _MANAGER, "ListUnits"), deadline)
    match body:
        case (list(lines),):
            return [_line(bus, line) for line in lines]
    raise SourceMalformed(bus.via, 0, "not a list of units")


def _line(bus: Bus, line: Sequence[Any]) -> _Listed:
    match line:
        case (str(name), _, str(load), str(active), str(sub), _, str(path), *_):
            return _Listed(name, load, active, sub, path)
    raise SourceMalformed(bus.via, 0, "a unit without its seven columns")


def _typed(value: Any, kind: type) -> Any:
    """A property's value if it has the right type and is not systemd's "infinity"."""
    return value if isinstance(value, kind) and value != _INFINITY else None


def _link(host: Host, path: str) -> str:
    try:
        return host.files.link(path)
    except SourceError:
        return ""
