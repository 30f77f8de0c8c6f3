"""One unit's verdict, from what makes it needed, what makes it unneeded, and what was seen.

The order matters. *Protected* first: such a unit is never called unneeded, whatever was seen.
*Needed* where anybody was seen using it. *Unneeded* only where the catalogue knows what would make
it needed, all of that could be looked at and none of it is there, and something positive speaks
against it. Everything else is *unknown*.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from shlex import quote

from sexton.cure.protected import Rule, why_protected
from sexton.model.audit import CRASH_LOOP, EnabledUnit, Fault, Need, Reason, Subject
from sexton.model.text import count, seconds, size
from sexton.model.unit import Unit
from sexton.prevent.audit.catalogue import Agent, Condition, agent_of
from sexton.prevent.audit.conditions import Answer, Place, check

#: Restarts since boot from which on a unit plainly does not stay up.
MANY_RESTARTS = 5
_SPEAKS_LATELY_S = 3600.0


@dataclass(frozen=True, slots=True)
class Judge:
    """What every verdict of one audit rests on."""

    place: Place
    protected: tuple[Rule, ...] = ()

    def subject(self, name: str, enabled: EnabledUnit | None) -> Subject:
        """Judge one unit."""
        agent = agent_of(name)
        unit = (self.place.seen.units or {}).get(name)
        kept = why_protected(name, self.protected)
        needed = self._answers(agent.needed if agent else (), name)
        users = [answer.reason for answer in needed if answer.holds]
        users += self._users(name)
        verdict, reasons, unseen = self._weigh(agent, name, users, needed)
        if kept is not None:
            verdict = Need.PROTECTED
            reasons = [Reason("must not be stopped", kept, "built-in list"), *users]
        activity = list(self._activity(name))
        signs = list(self._signs(name, unit, enabled))
        if verdict in (Need.NEEDED, Need.PROTECTED):
            reasons, against = [*reasons, *activity], signs
        else:
            reasons, against = [*reasons, *signs], activity
        counted = self.place.seen.restarts.get(name)
        deaths = self.place.seen.deaths
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
            restarts=counted.since_boot if counted else (unit.restarts if unit else None),
            deaths=None if deaths is None else deaths.get(name, 0),
        )

    def _answers(self, conditions: Iterable[Condition], name: str) -> list[Answer]:
        return [check(condition, self.place, name) for condition in conditions]

    def _weigh(
        self, agent: Agent | None, name: str, users: list[Reason], needed: list[Answer]
    ) -> tuple[Need, list[Reason], list[str]]:
        """Verdict, what speaks for it, and what could not be looked at."""
        if users:
            return Need.NEEDED, users, []
        live = self.place.seen.live
        unseen = [
            f"whether {answer.reason.what} ({answer.reason.value})"
            for answer in needed
            if answer.holds is None
        ]
        if agent is None or not agent.unneeded:
            return Need.UNKNOWN, [], unseen
        usable = [each for each in agent.unneeded if live or each.image]
        against = [answer.reason for answer in self._answers(usable, name) if answer.holds]
        # In an image nobody can look for users: what its files say must be enough, and is only
        # taken where the condition is marked as saying enough.
        blocked = [each for each in needed if each.holds is None] if live else []
        if not live:
            blocked = [
                answer
                for answer, condition in zip(needed, agent.needed, strict=True)
                if answer.holds is None and not condition.live_only
            ]
        if against and not blocked:
            absent = [
                replace(answer.reason, what=f"not so: {answer.reason.what}")
                for answer in needed
                if answer.holds is False
            ]
            return Need.UNNEEDED, [*against, *absent], unseen
        return Need.UNKNOWN, against, unseen

    def _users(self, name: str) -> list[Reason]:
        """Somebody seen leaning on it: units that need it and run, and connected clients."""
        seen = self.place.seen
        found = []
        leaning = (seen.leaning or {}).get(name)
        if leaning is not None:
            running = [
                each
                for each in leaning.strong
                if not each.endswith((".target", ".slice")) and seen.active(each)
            ]
            if running:
                found.append(Reason("running units require it", ", ".join(running[:3]), "D-Bus"))
        talk = (seen.talks or {}).get(name)
        if talk is not None and talk.clients:
            clients = ", ".join(talk.clients[:3])
            more = f" and {len(talk.clients) - 3:,} more" if len(talk.clients) > 3 else ""
            found.append(Reason("connected to it", clients + more, "sock_diag"))
        return found

    def _activity(self, name: str) -> Iterable[Reason]:
        """That it does something: no proof that anybody wants it, but worth a thought."""
        seen = self.place.seen
        talk = (seen.talks or {}).get(name)
        if talk is not None and talk.servers:
            yield Reason("it is connected to", ", ".join(talk.servers[:3]), "sock_diag")
        spent = (seen.spent or {}).get(name)
        if spent is not None and spent.cpu_us:
            used = f"{seconds(spent.cpu_us / 1e6)} in {seconds(seen.seconds)}"
            yield Reason("it used CPU", used, "its cgroup")
        if spent is not None and spent.io_bytes:
            used = f"{size(spent.io_bytes)} in {seconds(seen.seconds)}"
            yield Reason("it read or wrote", used, "its cgroup")
        spoke = (seen.spoke or {}).get(name)
        if spoke is not None and 0 <= seen.until_unix - spoke < _SPEAKS_LATELY_S:
            yield Reason("it last logged", f"{seconds(seen.until_unix - spoke)} ago", "journal")

    def _looping(self, name: str) -> Iterable[Fault]:
        """It restarts while we look, and has done so before."""
        counted = self.place.seen.restarts.get(name)
        if counted is None or not counted.count or counted.since_boot < MANY_RESTARTS:
            return
        a_day = 86400 * counted.count / max(counted.seconds, 1.0)
        times = f"{count(counted.count, 'restart')} in {seconds(counted.seconds)}"
        detail = f"{times}, {counted.since_boot:,} since boot or since it was last reset"
        fix = f"journalctl -u {quote(name)} -n 50"
        if why_protected(name, self.protected) is None:
            fix += "\nsudo sexton fix plan  # stop and mask it, with an undo; changes nothing yet"
        yield Fault(CRASH_LOOP, detail, fix, "NRestarts, D-Bus", round(a_day))

    def _signs(self, name: str, unit: Unit | None, enabled: EnabledUnit | None) -> Iterable[Reason]:
        """That it does not work, so that nobody can be using it now."""
        counted = self.place.seen.restarts.get(name)
        if counted is not None and counted.since_boot >= MANY_RESTARTS and not counted.count:
            value = f"{count(counted.since_boot, 'time')}, none while watched"
            yield Reason("it restarted", value, "NRestarts, D-Bus")
        died = (self.place.seen.deaths or {}).get(name, 0)
        if died:
            yield Reason("its cgroup died", count(died, "time"), "tracefs")
        if unit is not None and unit.active_state == "failed":
            yield Reason("it failed", unit.result or "no reason told", "D-Bus")
        if enabled is not None and enabled.program_missing:
            yield Reason("its program is missing", enabled.program, enabled.fragment)


def _hinted(enabled: EnabledUnit | None, agent: Agent | None) -> tuple[Fault, ...]:
    """The catalogue knows what some packages' units lack."""
    faults = enabled.faults if enabled else ()
    if enabled is None or agent is None or not agent.hint or enabled.restart.prevent_status:
        return faults
    return tuple(replace(each, detail=f"{each.detail}; {agent.hint}") for each in faults)
