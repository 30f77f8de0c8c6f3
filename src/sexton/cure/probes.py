"""Readings by name, so that a precondition of a plan can be read again when it is applied.

A probe is a word and what it is asked of: ``unit.load_state ecs.service``. What cannot be read is
never taken for what was expected.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sexton.cure.protected import Rule
from sexton.cure.standing import Standing, stand
from sexton.errors import SourceAbsent, SourceError
from sexton.host.host import Host
from sexton.host.reader import text, walk
from sexton.model.plan import Condition
from sexton.sources.cgroupfs.census import take
from sexton.sources.cgroupfs.layout import read_layout

BOOT_ID = "/proc/sys/kernel/random/boot_id"
_HOSTNAME = "/proc/sys/kernel/hostname"


@dataclass(slots=True)
class Probes:
    """Reads this host; a unit is asked once for all the conditions of one check."""

    host: Host
    rules: tuple[Rule, ...] = ()
    _stood: dict[str, Standing] = field(default_factory=dict)

    def forget(self) -> None:
        """The next reading is a new one."""
        self._stood.clear()

    def read(self, probe: str) -> str:
        """The value as text; `SourceError` where it cannot be had."""
        word, _, subject = probe.partition(" ")
        reading = _READINGS.get(word)
        if reading is None:
            raise SourceAbsent(probe, "this Sexton knows no such reading: make a new plan")
        return reading(self, subject)

    def unit(self, name: str) -> Standing:
        if name not in self._stood:
            self._stood[name] = stand(self.host, name)
        return self._stood[name]


def why_not(probes: Probes, condition: Condition) -> str:
    """Why a condition does not hold, in words for a person; empty where it does."""
    try:
        found = probes.read(condition.probe)
    except SourceError as error:
        return f"{condition.what} cannot be read: {error}"
    if holds(condition.test, found, condition.expected):
        return ""
    shown = condition.expected or "nothing"
    told = {"in": f"one of: {shown}", "<=": f"at most {shown}", ">=": f"at least {shown}"}
    wanted = told.get(condition.test, shown)
    return f"{condition.what}: now {found or 'nothing'}; the plan rests on {wanted}"


def holds(test: str, found: str, expected: str) -> bool:
    """Compare as the plan says.

    >>> holds("==", "loaded", "loaded"), holds(">=", "9", "12"), holds("in", "failed", "a failed")
    (True, False, True)
    """
    if test == "in":
        return found in expected.split(" ")
    if test in _NUMBERS:
        try:
            return _NUMBERS[test](float(_WORDS.get(found, found)), float(expected))
        except ValueError:
            return False
    return (found == expected) is (test == "==")


#: What a proof, whose value is a number, takes a yes and a no for.
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
        raise SourceAbsent("NRestarts", "this systemd counts none")
    return str(counted)


def _inode(probes: Probes, path: str) -> str:
    return str(probes.host.files.status(path).inode)


def _memory_inode(probes: Probes, path: str) -> str:
    """Of a cgroup by its path in the hierarchy that has memory."""
    mount = read_layout(probes.host).mount_point
    return _inode(probes, f"{mount}{path}")


def _live(probes: Probes, path: str) -> str:
    """Live cgroups below it."""
    return str(max(sum(1 for _ in walk(probes.host.files, path)) - 1, 0))


def _dying(probes: Probes, _subject: str) -> str:
    """Dead memory cgroups of the node."""
    host = probes.host
    census, _ = take(host, read_layout(host))
    if census.dying is None:
        raise SourceAbsent("/proc/cgroups", census.reason or "they cannot be counted here")
    return str(census.dying)


def _running(probes: Probes, name: str) -> str:
    """Does it run, or wait to be started again?"""
    return _word(probes.unit(name).active_state not in ("inactive", "failed"))


def _starts(probes: Probes, name: str) -> str:
    """Would something start it at the next boot?"""
    return _word(probes.unit(name).file_state in ("enabled", "enabled-runtime"))


def _masked(probes: Probes, name: str) -> str:
    unit = probes.unit(name)
    return _word(unit.load_state == "masked" or unit.file_state.startswith("masked"))


def _word(true: bool) -> str:
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
