"""One unit's verdict, from the catalogue's conditions and the evidence.

The order matters. *Protected* first: such a unit is never called unneeded. *Needed* if a user of it
was seen. *Unneeded* only if the catalogue knows what would make it needed, all of that could be
checked, none of it holds, and a condition for *unneeded* does. Everything else is *unknown*.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from shlex import quote
from typing import NamedTuple

from sexton.cure.protected import Rule, why_protected
from sexton.errors import SourceAbsent, SourceError
from sexton.host.reader import Files, exists, text
from sexton.model.audit import CRASH_LOOP, EnabledUnit, Fault, Need, Reason, Subject
from sexton.model.rows.unit import Unit
from sexton.model.text import count, seconds, shorten, size
from sexton.prevent.audit.catalogue import Agent, Condition, agent_of
from sexton.prevent.audit.evidence import Evidence
from sexton.series.restarts import COUNTED_BY

#: From this many restarts on, a unit clearly does not stay up.
MANY_RESTARTS = 5
_RECENTLY_S = 3600.0
_MOST_FILE = 1 << 20
#: Conditions that read the same in a container as on the node.
_MACHINE = ("vendor", "other_vendor")
_MOST_NAMES = 20_000


class Answer(NamedTuple):
    """`holds` is `None` if the condition could not be checked; then `reason.value` says why."""

    holds: bool | None
    reason: Reason


class Context(NamedTuple):
    """What conditions are checked against; `units` are those that run or start at boot."""

    files: Files
    seen: Evidence
    units: Collection[str]


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the units of one audit."""

    context: Context
    protected: tuple[Rule, ...] = ()

    def subject(self, name: str, enabled: EnabledUnit | None) -> Subject:
        """The verdict on one unit, with its reasons."""
        agent = agent_of(name)
        unit = (self.context.seen.units or {}).get(name)
        protected = why_protected(name, self.protected)
        needed = self._answers(agent.needed if agent else (), name)
        users = [answer.reason for answer in needed if answer.holds]
        users += self._users(name)
        verdict, reasons, unseen = self._weigh(agent, name, users, needed)
        if protected is not None:
            verdict = Need.PROTECTED
            reasons = [Reason("must not be stopped", protected, "built-in list"), *users]
        activity = list(self._activity(name))
        signs = list(self._signs(name, unit, enabled))
        if verdict in (Need.NEEDED, Need.PROTECTED):
            reasons, against = [*reasons, *activity], signs
        else:
            reasons, against = [*reasons, *signs], activity
        counted = self.context.seen.restarts.get(name)
        deaths = self.context.seen.deaths
        return Subject(
            unit=name,
            verdict=verdict,
            agent=agent.id if agent else "",
            title=agent.title if agent else (enabled.description if enabled else ""),
            state=f"{unit.active_state} ({unit.sub_state})" if unit else "",
            reasons=tuple(reasons),
            against=tuple(against),
            unseen=tuple(dict.fromkeys(unseen)),
            wrong_if=agent.wrong_if if agent and verdict is Need.UNNEEDED else "",
            faults=(*self._looping(name), *_hinted(enabled, agent)),
            enabled=enabled,
            restarts=counted.total if counted else (unit.restarts if unit else None),
            deaths=None if deaths is None else deaths.get(name, 0),
        )

    def _answers(self, conditions: Iterable[Condition], name: str) -> list[Answer]:
        return [check_condition(condition, self.context, name) for condition in conditions]

    def _weigh(
        self, agent: Agent | None, name: str, users: list[Reason], needed: list[Answer]
    ) -> tuple[Need, list[Reason], list[str]]:
        """The verdict, the reasons for it, and what could not be checked."""
        if users:
            return Need.NEEDED, users, []
        live = self.context.seen.live
        unseen = [
            f"whether {answer.reason.what} ({answer.reason.value})"
            for answer in needed
            if answer.holds is None
        ]
        if agent is None or not agent.unneeded:
            return Need.UNKNOWN, [], unseen
        usable = [condition for condition in agent.unneeded if live or condition.image]
        against = [answer.reason for answer in self._answers(usable, name) if answer.holds]
        # An image has no users to look for: only conditions marked as sufficient for an image
        # count, and only conditions that its files can answer block the verdict.
        blocked = any(
            answer.holds is None and (live or not condition.live_only)
            for answer, condition in zip(needed, agent.needed, strict=True)
        )
        if against and not blocked:
            absent = [
                replace(answer.reason, what=f"ruled out: {answer.reason.what}")
                for answer in needed
                if answer.holds is False
            ]
            return Need.UNNEEDED, [*against, *absent], unseen
        return Need.UNKNOWN, against, unseen

    def _users(self, name: str) -> list[Reason]:
        """Users of the unit: running units that require it, and connected clients."""
        seen = self.context.seen
        found = []
        running = [
            dependant
            for dependant in (seen.dependants or {}).get(name, ())
            if not dependant.endswith((".target", ".slice")) and seen.active(dependant)
        ]
        if running:
            found.append(Reason("running units require it", ", ".join(running[:3]), "D-Bus"))
        peers = (seen.connections or {}).get(name)
        if peers is not None and peers.clients:
            found.append(Reason("connected clients", _some(peers.clients), "sock_diag"))
        return found

    def _activity(self, name: str) -> Iterable[Reason]:
        """Signs that it does work: no proof that anything needs it."""
        seen = self.context.seen
        peers = (seen.connections or {}).get(name)
        if peers is not None and peers.servers:
            yield Reason("connected to", ", ".join(peers.servers[:3]), "sock_diag")
        usage = (seen.usage or {}).get(name)
        if usage is not None and usage.cpu_us:
            used = f"{seconds(usage.cpu_us / 1e6)} in {seconds(seen.seconds)}"
            yield Reason("CPU used", used, "its cgroup")
        if usage is not None and usage.io_bytes:
            used = f"{size(usage.io_bytes)} in {seconds(seen.seconds)}"
            yield Reason("I/O", used, "its cgroup")
        logged = (seen.last_logged or {}).get(name)
        if logged is not None and 0 <= seen.until_unix - logged < _RECENTLY_S:
            yield Reason("last logged", f"{seconds(seen.until_unix - logged)} ago", "journal")

    def _looping(self, name: str) -> Iterable[Fault]:
        """It restarted while watched, and often before."""
        counted = self.context.seen.restarts.get(name)
        if counted is None or not counted.recent or counted.total < MANY_RESTARTS:
            return
        a_day = counted.per_day
        times = f"{count(counted.recent, 'restart')} in {seconds(counted.seconds)}"
        detail = f"{times}, {counted.total:,} so far"
        fix = f"journalctl -u {quote(name)} -n 50"
        if why_protected(name, self.protected) is None:
            fix += "\nsudo sexton fix plan  # to stop and mask it, with undo; changes nothing yet"
        yield Fault(CRASH_LOOP, detail, fix, COUNTED_BY, round(a_day))

    def _signs(self, name: str, unit: Unit | None, enabled: EnabledUnit | None) -> Iterable[Reason]:
        """Signs that it does not work, so nothing can be using it now."""
        counted = self.context.seen.restarts.get(name)
        if counted is not None and counted.total >= MANY_RESTARTS and not counted.recent:
            value = f"{count(counted.total, 'time')}, none while watched"
            yield Reason("restarted", value, COUNTED_BY)
        died = (self.context.seen.deaths or {}).get(name, 0)
        if died:
            yield Reason("its cgroup was removed", count(died, "time"), "tracefs")
        if unit is not None and unit.active_state == "failed":
            yield Reason("failed", unit.result or "no reason given", "D-Bus")
        if enabled is not None and enabled.program_missing:
            yield Reason("its program is missing", enabled.program, enabled.fragment)


def _hinted(enabled: EnabledUnit | None, agent: Agent | None) -> tuple[Fault, ...]:
    """Add the catalogue's hint on what some packages' units lack."""
    faults = enabled.faults if enabled else ()
    if enabled is None or agent is None or not agent.hint or enabled.restart.prevent_status:
        return faults
    return tuple(replace(fault, detail=f"{fault.detail}; {agent.hint}") for fault in faults)


def check_condition(condition: Condition, context: Context, unit: str) -> Answer:
    """Whether the condition holds."""
    if condition.live_only and not context.seen.live:
        what = _LIVE_FACTS.get(condition.kind, "the hardware it will run on")
        return Answer(None, Reason(condition.why, f"an image does not show {what}", "not seen"))
    try:
        answer = _CHECKS[condition.kind](condition, context, unit)
    except SourceError as error:
        return Answer(None, Reason(condition.why, error.detail or "not readable", error.path))
    missing = answer.holds is condition.kind.startswith("lacking")
    if context.seen.partial and condition.live_only and missing and condition.kind not in _MACHINE:
        value = f"{answer.reason.value}, but read from inside a container"
        return Answer(None, replace(answer.reason, value=value))
    return answer


def _workload(condition: Condition, context: Context, _: str) -> Answer:
    found = context.seen.workloads
    if found is None:
        return Answer(None, Reason(condition.why, "workloads could not be read", "/proc/*/cgroup"))
    for workload in found:
        if workload.kind == condition.value:
            value = f"{workload.count:,}, e.g. {workload.example}"
            return Answer(True, Reason(condition.why, value, "cgroups of processes"))
    return Answer(False, Reason(condition.why, "none", "cgroups of processes"))


def _peers(condition: Condition, context: Context, unit: str, what: str) -> Answer:
    if context.seen.connections is None:
        return Answer(None, Reason(condition.why, "sockets could not be read", "sock_diag"))
    known = context.seen.connections.get(unit)
    peers: tuple[str, ...] = getattr(known, what) if known else ()
    if peers:
        return Answer(True, Reason(condition.why, _some(peers), "sock_diag"))
    if what == "clients" and known and known.datagrams:
        value = f"{_some(known.datagrams)}: UDP senders are unknown"
        return Answer(None, Reason(condition.why, value, "sock_diag"))
    return Answer(False, Reason(condition.why, "none", "sock_diag"))


def _file(condition: Condition, context: Context, _: str) -> Answer:
    path = condition.value
    if not condition.matches:
        there = exists(context.files, path)
        return Answer(there, Reason(condition.why, "present" if there else "absent", path))
    try:
        content = text(context.files, path, _MOST_FILE)
    except SourceAbsent:
        return Answer(False, Reason(condition.why, "no such file", path))
    found = re.search(condition.matches, content)
    value = shorten(found[0].strip(), 60) if found else "not set"
    return Answer(found is not None, Reason(condition.why, value, path))


def _holds(condition: Condition, context: Context, _: str) -> Answer:
    found = _like(condition, context)
    value = f"{len(found):,}, e.g. {found[0]}" if found else "none"
    return Answer(bool(found), Reason(condition.why, value, condition.value))


def _lacking(condition: Condition, context: Context, _: str) -> Answer:
    there = [path for path in condition.value if exists(context.files, path)]
    value = f"{there[0]} exists" if there else "absent"
    return Answer(not there, Reason(condition.why, value, ", ".join(condition.value)))


def _lacking_like(condition: Condition, context: Context, _: str) -> Answer:
    found = _like(condition, context)
    value = f"{len(found):,}" if found else "none"
    return Answer(not found, Reason(condition.why, value, condition.value))


def _like(condition: Condition, context: Context) -> list[str]:
    try:
        names = context.files.names(condition.value)[:_MOST_NAMES]
    except SourceAbsent:
        return []
    return sorted(name for name in names if fnmatchcase(name, condition.like))


def _unit(condition: Condition, context: Context, _: str) -> Answer:
    found = sorted(name for name in context.units if fnmatchcase(name, condition.value))
    where = "systemd" if context.seen.live else "unit files"
    if not found:
        return Answer(False, Reason(condition.why, f"no {condition.value}", where))
    how = "is running" if context.seen.active(found[0]) else "starts at boot"
    return Answer(True, Reason(condition.why, f"{found[0]} {how}", where))


def _vendor(condition: Condition, context: Context, _: str) -> Answer:
    vendor = context.seen.vendor
    path = "/sys/class/dmi/id/sys_vendor"
    if not vendor:
        return Answer(None, Reason(condition.why, "the machine reports no vendor", path))
    same = re.search(condition.value, vendor) is not None
    holds = same if condition.kind == "vendor" else not same
    return Answer(holds, Reason(condition.why, vendor, path))


def _some(names: tuple[str, ...], most: int = 3) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


_CHECKS: dict[str, Callable[[Condition, Context, str], Answer]] = {
    "workload": _workload,
    "clients": partial(_peers, what="clients"),
    "connections": partial(_peers, what="servers"),
    "file": _file,
    "holds": _holds,
    "lacking": _lacking,
    "lacking_like": _lacking_like,
    "unit": _unit,
    "vendor": _vendor,
    "other_vendor": _vendor,
}
#: What an image cannot show, by kind of condition; for files it is the hardware.
_LIVE_FACTS = {
    "workload": "what will run on it",
    "clients": "its clients",
    "connections": "its connections",
    "vendor": "the machine it will run on",
    "other_vendor": "the machine it will run on",
}
