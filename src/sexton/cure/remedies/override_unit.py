"""End a restart loop with a drop-in instead of a mask: the unit can still be started manually."""

from __future__ import annotations

from shlex import quote
from typing import Any

from sexton.cure.remedy import StepContext, restore_unit, save_unit, text_parameter
from sexton.cure.units import OVERRIDE, UnitSnapshot, override, override_place, snapshot_unit
from sexton.model.plan import Condition, Criterion, Step

RECLAIMS = False
prepare = save_unit
undo = restore_unit


def propose(identity: str, before: UnitSnapshot, after: str) -> Step:
    """`after` is the step that stops it."""
    name = before.id
    place = override_place(before)
    setting = " ".join(line for line in OVERRIDE.splitlines() if not line.startswith("#"))
    lines = " ".join(quote(line) for line in OVERRIDE.splitlines())
    return Step(
        id=identity,
        remedy="override_unit",
        title=f"override {name}: no automatic restarts",
        target=name,
        risk="low",
        risk_why="it can still be started, manually or at boot; then it fails once and stays down",
        preconditions=(
            Condition(f"{name} is running", "systemd ActiveState", "no", "it must be stopped first",
                      f"unit.running {name}", "==", after),
        ),
        effect=f"writes {place}: {setting}",
        cannot_undo="",
        undo=f"removes {place}",
        proof=(
            Criterion("it is running or waiting to restart", "systemd ActiveState", "<=", 0, "",
                      f"unit.running {name}"),
        ),
        commands=(
            f"mkdir -p {quote(place.rpartition('/')[0])}",
            f"printf '%s\\n' {lines} > {quote(place)}",
            "systemctl daemon-reload",
        ),
        parameters={"unit": name},
    )  # fmt: skip


def carry_out(step: Step, context: StepContext) -> dict[str, Any]:
    before = snapshot_unit(text_parameter(step, "unit"), context.host)
    return {"said": f"wrote {override(before, context.writer, context.deadline_s(60))}"}
