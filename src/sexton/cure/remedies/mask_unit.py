"""Prevent every start of a unit: manually, by a socket, by another unit."""

from __future__ import annotations

from shlex import quote
from typing import Any

from sexton.cure.remedy import StepContext, restore_unit, save_unit, text_parameter
from sexton.cure.units import UnitSnapshot, mask, mask_place, snapshot_unit
from sexton.model.plan import Condition, Criterion, Step

RECLAIMS = False
prepare = save_unit
undo = restore_unit


def propose(identity: str, before: UnitSnapshot, after: str) -> Step:
    """`after` is the step that stops it; `CommandError` if no mask would take effect."""
    name = before.id
    place = mask_place(before)
    standard = place == f"/etc/systemd/system/{name}"
    by_hand = (f"systemctl mask {quote(name)}",)
    link = (f"mkdir -p {quote(place.rpartition('/')[0])}", f"ln -s /dev/null {quote(place)}",
            "systemctl daemon-reload")  # fmt: skip
    return Step(
        id=identity,
        remedy="mask_unit",
        title=f"mask {name}",
        target=name,
        risk="low",
        risk_why="nothing can start it until it is unmasked; systemctl start says so",
        preconditions=(
            Condition(f"{name} is masked", "systemd LoadState", "no",
                      "someone masked it since", f"unit.masked {name}"),
            Condition(f"{name} is running", "systemd ActiveState", "no", "it must be stopped first",
                      f"unit.running {name}", "==", after),
        ),
        effect=f"creates the link {place} -> /dev/null",
        cannot_undo="",
        undo=f"removes {place}",
        proof=(Criterion("it is masked", "systemd LoadState", ">=", 1, "", f"unit.masked {name}"),),
        commands=by_hand if standard else link,
        parameters={"unit": name},
    )  # fmt: skip


def carry_out(step: Step, context: StepContext) -> dict[str, Any]:
    name = text_parameter(step, "unit")
    made = mask(snapshot_unit(name, context.host), context.writer, context.deadline_s(60))
    return {"said": f"created {made} -> /dev/null" if made else f"{name} was already masked"}
