"""Whether a catalogue's condition holds: yes, no, or nobody could look (`None`)."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceError
from sexton.host.reader import Files, exists, text
from sexton.model.audit import Reason
from sexton.model.text import shorten
from sexton.prevent.audit.catalogue import Condition
from sexton.prevent.audit.seen import Seen

_MOST_FILE = 1 << 20
#: The same from inside a container as on the node.
_MACHINE = ("vendor", "other_vendor")
_MOST_NAMES = 20_000


class Answer(NamedTuple):
    """`holds` is `None` where nobody could look; then `reason.value` says why."""

    holds: bool | None
    reason: Reason


class Place(NamedTuple):
    """All that a condition may look at; `units` are those that run or start at boot."""

    files: Files
    seen: Seen
    units: Collection[str]


def check(condition: Condition, place: Place, unit: str) -> Answer:
    """Look."""
    if condition.live_only and not place.seen.live:
        what = f"{_NAMES[condition.kind]}"
        return Answer(None, Reason(condition.why, f"an image does not show {what}", "not seen"))
    try:
        answer = _CHECKS[condition.kind](condition, place, unit)
    except SourceError as error:
        return Answer(None, Reason(condition.why, error.detail or "not readable", error.path))
    missing = answer.holds is condition.kind.startswith("lacking")
    if place.seen.partial and condition.live_only and missing and condition.kind not in _MACHINE:
        value = f"{answer.reason.value}, but seen from inside a container"
        return Answer(None, replace(answer.reason, value=value))
    return answer


def _workload(condition: Condition, place: Place, _: str) -> Answer:
    found = place.seen.workloads
    if found is None:
        return Answer(None, Reason(condition.why, "workloads cannot be seen", "/proc/*/cgroup"))
    for each in found:
        if each.kind == condition.value:
            value = f"{each.count:,}, e.g. {each.example}"
            return Answer(True, Reason(condition.why, value, "cgroups of processes"))
    return Answer(False, Reason(condition.why, "none", "cgroups of processes"))


def _clients(condition: Condition, place: Place, unit: str) -> Answer:
    return _talk(condition, place, unit, "clients")


def _connections(condition: Condition, place: Place, unit: str) -> Answer:
    return _talk(condition, place, unit, "servers")


def _talk(condition: Condition, place: Place, unit: str, what: str) -> Answer:
    if place.seen.talks is None:
        return Answer(None, Reason(condition.why, "sockets cannot be seen", "sock_diag"))
    talk = place.seen.talks.get(unit)
    peers: tuple[str, ...] = getattr(talk, what) if talk else ()
    if peers:
        return Answer(True, Reason(condition.why, _some(peers), "sock_diag"))
    if what == "clients" and talk and talk.datagrams:
        value = f"{_some(talk.datagrams)}: UDP does not tell who sends"
        return Answer(None, Reason(condition.why, value, "sock_diag"))
    return Answer(False, Reason(condition.why, "nobody", "sock_diag"))


def _file(condition: Condition, place: Place, _: str) -> Answer:
    path = condition.value
    if not condition.matches:
        there = exists(place.files, path)
        return Answer(there, Reason(condition.why, "there" if there else "not there", path))
    try:
        content = text(place.files, path, _MOST_FILE)
    except SourceAbsent:
        return Answer(False, Reason(condition.why, "no such file", path))
    found = re.search(condition.matches, content)
    value = shorten(found[0].strip(), 60) if found else "not set"
    return Answer(found is not None, Reason(condition.why, value, path))


def _holds(condition: Condition, place: Place, _: str) -> Answer:
    found = _like(condition, place)
    value = f"{len(found):,}, e.g. {found[0]}" if found else "none"
    return Answer(bool(found), Reason(condition.why, value, condition.value))


def _lacking(condition: Condition, place: Place, _: str) -> Answer:
    there = [path for path in condition.value if exists(place.files, path)]
    value = f"{there[0]} is there" if there else "not there"
    return Answer(not there, Reason(condition.why, value, ", ".join(condition.value)))


def _lacking_like(condition: Condition, place: Place, _: str) -> Answer:
    found = _like(condition, place)
    value = f"{len(found):,}" if found else "none"
    return Answer(not found, Reason(condition.why, value, condition.value))


def _like(condition: Condition, place: Place) -> list[str]:
    try:
        names = place.files.names(condition.value)[:_MOST_NAMES]
    except SourceAbsent:
        return []
    return sorted(name for name in names if fnmatchcase(name, condition.like))


def _unit(condition: Condition, place: Place, _: str) -> Answer:
    found = sorted(name for name in place.units if fnmatchcase(name, condition.value))
    where = "systemd" if place.seen.live else "unit files"
    if not found:
        return Answer(False, Reason(condition.why, f"no {condition.value}", where))
    how = "runs" if place.seen.active(found[0]) else "starts at boot"
    return Answer(True, Reason(condition.why, f"{found[0]} {how}", where))


def _vendor(condition: Condition, place: Place, _: str) -> Answer:
    vendor = place.seen.vendor
    path = "/sys/class/dmi/id/sys_vendor"
    if not vendor:
        return Answer(None, Reason(condition.why, "the machine does not say who made it", path))
    same = re.search(condition.value, vendor) is not None
    holds = same if condition.kind == "vendor" else not same
    return Answer(holds, Reason(condition.why, vendor, path))


def _some(names: tuple[str, ...], most: int = 3) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


_CHECKS = {
    "workload": _workload,
    "clients": _clients,
    "connections": _connections,
    "file": _file,
    "holds": _holds,
    "lacking": _lacking,
    "lacking_like": _lacking_like,
    "unit": _unit,
    "vendor": _vendor,
    "other_vendor": _vendor,
}
_NAMES = {
    "workload": "what will run on it",
    "clients": "who connects to it",
    "connections": "whom it connects to",
    "vendor": "the machine it will run on",
    "other_vendor": "the machine it will run on",
    "file": "what the kernel will offer",
    "holds": "what the kernel will offer",
    "lacking": "what the kernel will offer",
    "lacking_like": "what the kernel will offer",
    "unit": "units",
}
