"""Preconditions of a plan, read again when it is applied.

A probe is the name of a reading and its subject: ``unit.load_state ecs.service``. A reading that
fails never counts as met.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sexton.cure.node_steps import READINGS as NODE_READINGS
from sexton.cure.nodes import NO_CREDENTIAL, SERVER, Cluster
from sexton.cure.protected import Rule
from sexton.cure.units import UnitStatus, unit_status
from sexton.errors import SourceAbsent, SourceDenied, SourceError
from sexton.host.host import Host
from sexton.host.reader import text, walk
from sexton.model.plan import Condition
from sexton.sources.cgroupfs.census import take
from sexton.sources.cgroupfs.layout import read_layout

BOOT_ID = "/proc/sys/kernel/random/boot_id"
_HOSTNAME = "/proc/sys/kernel/hostname"


@dataclass(slots=True)
class Probes:
    """Reads this host; each unit is queried once per check, also if systemd does not answer.

    `cluster`: with a credential, its Node and pods too.
    """

    host: Host
    rules: tuple[Rule, ...] = ()
    cluster: Cluster | None = None
    _units: dict[str, UnitStatus | SourceError] = field(default_factory=dict)

    def forget(self) -> None:
        """Drop cached units, so that the next reading is fresh."""
        self._units.clear()

    def read(self, probe: str) -> str:
        """The value as text; `SourceError` if it cannot be read."""
        word, _, subject = probe.partition(" ")
        if word in NODE_READINGS:
            if self.cluster is None:
                raise SourceDenied(SERVER, NO_CREDENTIAL)
            return NODE_READINGS[word](self.cluster, subject)
        reading = _READINGS.get(word)
        if reading is None:
            raise SourceAbsent(probe, "unknown reading in this version of Sexton: make a new plan")
        return reading(self, subject)

    def dying(self) -> int | None:
        """Dying memory cgroups; `None` if they cannot be counted."""
        try:
            return int(self.read("dying"))
        except SourceError:
            return None

    def unit(self, name: str) -> UnitStatus:
        if name not in self._units:
            try:
                self._units[name] = unit_status(self.host, name)
            except SourceError as error:
                self._units[name] = error
        found = self._units[name]
        if isinstance(found, SourceError):
            raise found
        return found


def why_unmet(probes: Probes, condition: Condition) -> str:
    """Why a condition is not met; empty if it is."""
    try:
        found = probes.read(condition.probe)
    except SourceError as error:
        return f"{condition.what}: cannot be read: {error}"
    if satisfies(condition.test, found, condition.expected):
        return ""
    shown = condition.expected or "none"
    phrases = {"in": f"one of: {shown}", "<=": f"at most {shown}", ">=": f"at least {shown}"}
    wanted = phrases.get(condition.test, shown)
    return f"{condition.what}: now {found or 'none'}, the plan expects {wanted}"


def satisfies(test: str, found: str, expected: str) -> bool:
    """Compare a reading as the plan specifies.

    >>> satisfies("==", "loaded", "loaded"), satisfies(">=", "9", "12")
    (True, False)
    >>> satisfies("in", "failed", "a failed")
    True
    """
    if test == "in":
        return found in expected.split(" ")
    if test in _NUMBERS:
        try:
            return _NUMBERS[test](float(_WORDS.get(found, found)), float(expected))
        except ValueError:
            return False
    return (found == expected) is (test == "==")


#: Numeric values of yes and no, for proofs.
_WORDS = {"yes": "1", "no": "0"}
_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def _restarts(probes: Probes, name: str) -> str:
    counted = probes.unit(name).restarts
    if counted is None:
        raise SourceAbsent("NRestarts", "this systemd does not count restarts")
    return str(counted)


def _inode(probes: Probes, path: str) -> str:
    return str(probes.host.files.status(path).inode)


def _memory_inode(probes: Probes, path: str) -> str:
    """Inode of a cgroup by its path in the memory hierarchy."""
    mount = read_layout(probes.host).mount_point
    return _inode(probes, f"{mount}{path}")


def _live(probes: Probes, path: str) -> str:
    """Number of live cgroups below it."""
    return str(max(sum(1 for _ in walk(probes.host.files, path)) - 1, 0))


def _dying(probes: Probes, _subject: str) -> str:
    """Number of dying memory cgroups on the node."""
    host = probes.host
    census, _ = take(host, read_layout(host))
    if census.dying is None:
        raise SourceAbsent("/proc/cgroups", census.reason or "cannot be counted here")
    return str(census.dying)


def _running(probes: Probes, name: str) -> str:
    """Whether it runs or waits to restart."""
    return _yes_no(probes.unit(name).active_state not in ("inactive", "failed"))


def _starts(probes: Probes, name: str) -> str:
    """Whether it starts at the next boot."""
    return _yes_no(probes.unit(name).file_state in ("enabled", "enabled-runtime"))


def _masked(probes: Probes, name: str) -> str:
    unit = probes.unit(name)
    return _yes_no(unit.load_state == "masked" or unit.file_state.startswith("masked"))


def _yes_no(true: bool) -> str:
    return "yes" if true else "no"


_READINGS: Mapping[str, Callable[[Probes, str], str]] = {
    "boot_id": lambda probes, _: text(probes.host.files, BOOT_ID).strip(),
    "hostname": lambda probes, _: text(probes.host.files, _HOSTNAME).strip(),
    "unit.load_state": lambda probes, name: probes.unit(name).load_state,
    "unit.active_state": lambda probes, name: probes.unit(name).active_state,
    "unit.file_state": lambda probes, name: probes.unit(name).file_state,
    "unit.fragment": lambda probes, name: probes.unit(name).fragment,
    "unit.restarts": _restarts,
    "unit.running": _running,
    "unit.enabled": _starts,
    "unit.masked": _masked,
    "dying": _dying,
    "unit.stops_with_it": lambda probes, name: " ".join(probes.unit(name).stops_with_it),
    "unit.protection": lambda probes, name: probes.unit(name).protection(probes.rules),
    "cgroup.inode": _inode,
    "cgroup.memory_inode": _memory_inode,
    "cgroup.live": _live,
}
