"""Stop a unit the regular way: ExecStop, SIGTERM, its own timeout."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any

from sexton.cure.remedy import StepContext, restore_saved, text_parameter, unprotected_unit
from sexton.cure.units import STOP_S, UnitStatus, snapshot_unit, stop
from sexton.model.plan import Condition, Criterion, Step

RECLAIMS = False


def propose(identity: str, unit: UnitStatus, pattern: str) -> Step:
    """`pattern` describes in a few words how the unit misbehaves."""
    name = unit.name
    also = unit.stops_with_it
    effect = f"systemctl stop {name}: its ExecStop=, SIGTERM, and SIGKILL after its own timeout"
    if also:
        effect += f"; systemd also stops {', '.join(also)}"
    starters = [starter for starter in unit.started_by if starter != name]
    why = "it keeps failing anyway" if unit.restarts else "its clients lose their service"
    if starters:
        why += f"; {', '.join(starters)} may start it again until it is masked"
    return Step(
        id=identity,
        remedy="stop_unit",
        title=f"stop {name}",
        target=name,
        risk="medium" if also else "low",
        risk_why=f"{why}; {pattern}" if pattern else why,
        preconditions=conditions(unit),
        effect=effect,
        cannot_undo="its processes' memory; its restart counter",
        undo=f"systemctl start {' '.join((name, *also))}" if _runs(unit) else "nothing to start",
        proof=(
            Criterion("it is running or waiting to restart", "systemd ActiveState", "<=", 0, "",
                      f"unit.running {name}"),
        ),
        commands=(f"systemctl stop {quote(name)}",),
        parameters={"unit": name},
    )  # fmt: skip


def conditions(unit: UnitStatus) -> tuple[Condition, ...]:
    """Facts that the decision to stop depends on."""
    name = unit.name
    found = [
        Condition(f"LoadState of {name}", "systemd", unit.load_state,
                  "masked or gone means that someone acted since", f"unit.load_state {name}"),
        Condition(f"unit file of {name}", "systemd FragmentPath", unit.fragment,
                  "a different file is a different unit", f"unit.fragment {name}"),
        Condition(f"units that stop with {name}", "systemd RequiredBy, BoundBy, PartOf",
                  " ".join(unit.stops_with_it), "a stop propagates to units that require it",
                  f"unit.stops_with_it {name}"),
        Condition(f"protection of {name}", "Sexton's list, the configuration, its processes", "",
                  "protected units are never stopped", f"unit.protection {name}"),
    ]  # fmt: skip
    if unit.restarts:
        found.append(
            Condition(f"restarts of {name}", "systemd NRestarts", str(unit.restarts),
                      "a reset counter means that someone fixed or restarted it",
                      f"unit.restarts {name}", ">=")
        )  # fmt: skip
    return tuple(found)


def _runs(unit: UnitStatus) -> bool:
    return unit.active_state in ("active", "activating", "reloading")


def prepare(step: Step, context: StepContext) -> dict[str, Any]:
    name = unprotected_unit(step, context)
    also = [
        snapshot_unit(dependent, context.host).as_json()
        for dependent in context.probes.unit(name).stops_with_it
    ]
    return {"unit": snapshot_unit(name, context.host).as_json(), "along": also}


def carry_out(step: Step, context: StepContext) -> dict[str, Any]:
    before = snapshot_unit(text_parameter(step, "unit"), context.host)
    own = before.stop_timeout_s or STOP_S
    stop(before, context.writer, context.deadline_s(max(own, STOP_S) + 5))
    return {"said": f"stopped {before.id}, which was {before.active_state} ({before.sub_state})"}


def undo(before: Mapping[str, Any], context: StepContext) -> list[str]:
    """Start it again if it was running, and the units stopped with it."""
    return [
        line
        for saved in (before["unit"], *before["along"])
        for line in restore_saved(saved, context)
    ]
