"""Remove the links by which other units start a unit, so it stays down after the next boot."""

from __future__ import annotations

from shlex import quote
from typing import Any

from sexton.cure.remedy import StepContext, restore_unit, save_unit, text_parameter
from sexton.cure.unit_files import enabling_links
from sexton.cure.units import UnitSnapshot, disable, snapshot_unit
from sexton.model.plan import Condition, Criterion, Step

RECLAIMS = False
prepare = save_unit
undo = restore_unit


def propose(identity: str, before: UnitSnapshot, after: str) -> Step:
    """`after` is the step that stops it."""
    name = before.id
    links = [entry.path for entry in enabling_links(before.entries)]
    return Step(
        id=identity,
        remedy="disable_unit",
        title=f"disable {name}",
        target=name,
        risk="low",
        risk_why="it no longer starts at boot",
        preconditions=(
            Condition(f"UnitFileState of {name}", "systemd", before.file_state,
                      "another state means that someone changed it since",
                      f"unit.file_state {name}"),
            Condition(f"{name} is running", "systemd ActiveState", "no", "it must be stopped first",
                      f"unit.running {name}", "==", after),
        ),
        effect=f"removes {'the link' if len(links) == 1 else 'the links'} {', '.join(links)}",
        cannot_undo="",
        undo="restores the same links with owner and time",
        proof=(
            Criterion("it starts at boot", "systemd UnitFileState", "<=", 0, "",
                      f"unit.enabled {name}"),
        ),
        commands=(f"systemctl disable {quote(name)}",),
        parameters={"unit": name},
    )  # fmt: skip


def carry_out(step: Step, context: StepContext) -> dict[str, Any]:
    name = text_parameter(step, "unit")
    gone = disable(snapshot_unit(name, context.host), context.writer, context.deadline_s(60))
    return {"said": f"removed {', '.join(gone)}" if gone else f"{name} had no links left"}
