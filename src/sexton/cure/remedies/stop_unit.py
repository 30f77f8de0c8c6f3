"""Stop a unit as its author meant it to be stopped: ExecStop, SIGTERM, its own timeout."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from sexton.cure.keeping import put_back
from sexton.cure.remedy import Hands, text_of, unit_of
from sexton.cure.standing import Standing
from sexton.cure.units import STOP_S, stop, unit_state
from sexton.model.plan import Condition, Criterion, Step

RECLAIMS = False


def propose(identity: str, unit: Standing, pattern: str) -> Step:
    """`pattern` says in a few words how the unit was seen to misbehave."""
    name = unit.name
    along = unit.stops_with_it
    effect = f"systemctl stop {name}: its ExecStop=, SIGTERM, and SIGKILL after its own timeout"
    if along:
        effect += f"; systemd stops with it: {', '.join(along)}"
    starters = [each for each in unit.started_by if each != name]
    why = "it dies anyway" if unit.restarts else "whatever uses it loses it"
    if starters:
        why += f"; {', '.join(starters)} may start it again until it is masked"
    return Step(
        id=identity,
        remedy="stop_unit",
        title=f"stop {name}",
        target=name,
        risk="medium" if along else "low",
        risk_why=f"{why}; {pattern}" if pattern else why,
        preconditions=conditions(unit),
        effect=effect,
        cannot_undo="what its processes held in memory; its restart counter",
        undo=f"systemctl start {' '.join((name, *along))}" if _runs(unit) else "it stays down",
        proof=(
            Criterion("it runs or waits to restart", "systemd ActiveState", "<=", 0, "",
                      f"unit.running {name}"),
        ),
        commands=(f"systemctl stop {quote(name)}",),
        parameters={"unit": name},
    )  # fmt: skip


def conditions(unit: Standing) -> tuple[Condition, ...]:
    """What the decision to stop rests on."""
    name = unit.name
    found = [
        Condition(f"LoadState of {name}", "systemd", unit.load_state,
                  "masked or gone means that somebody acted meanwhile", f"unit.load_state {name}"),
        Condition(f"the file of {name}", "systemd FragmentPath", unit.fragment,
                  "another file is another unit", f"unit.fragment {name}"),
        Condition(f"what stops with {name}", "systemd RequiredBy, BoundBy, PartOf",
                  " ".join(unit.stops_with_it), "a stop goes on to what needs it",
                  f"unit.stops_with_it {name}"),
        Condition(f"what protects {name}", "Sexton's list, the configuration, its processes", "",
                  "protected units are never stopped", f"unit.protection {name}"),
    ]  # fmt: skip
    if unit.restarts:
        found.append(
            Condition(f"restarts of {name}", "systemd NRestarts", str(unit.restarts),
                      "a counter that was cleared means that somebody mended or restarted it",
                      f"unit.restarts {name}", ">=")
        )  # fmt: skip
    return tuple(found)


def _runs(unit: Standing) -> bool:
    return unit.active_state in ("active", "activating", "reloading")


def prepare(step: Step, hands: Hands) -> dict[str, Any]:
    name = unit_of(step, hands)
    along = [
        unit_state(each, hands.host).as_json() for each in hands.probes.unit(name).stops_with_it
    ]
    return {"unit": unit_state(name, hands.host).as_json(), "along": along}


def carry_out(step: Step, hands: Hands) -> dict[str, Any]:
    before = unit_state(text_of(step, "unit"), hands.host)
    own = before.stop_timeout_s or STOP_S
    stop(before, hands.writer, hands.deadline_s(max(own, STOP_S) + 5))
    return {"said": f"{before.id} was {before.active_state} ({before.sub_state}) and is stopped"}


def undo(before: Mapping[str, Any], hands: Hands) -> list[str]:
    """Start what ran, and what ran by it."""
    return [line for kept in (before["unit"], *before["along"]) for line in put_back(kept, hands)]
