"""Take away the links by which others start a unit, so that it stays down after the next boot."""

from __future__ import annotations

from shlex import quote
from typing import Any

from sexton.cure.keeping import keep_unit, put_unit_back
from sexton.cure.remedy import Hands, text_of
from sexton.cure.unit_files import enabling
from sexton.cure.units import UnitBefore, disable, unit_state
from sexton.model.plan import Condition, Criterion, Step

RECLAIMS = False
prepare = keep_unit
undo = put_unit_back


def propose(identity: str, before: UnitBefore, after: str) -> Step:
    """`after` is the step that stops it."""
    name = before.id
    links = [entry.path for entry in enabling(before.entries)]
    return Step(
        id=identity,
        remedy="disable_unit",
        title=f"disable {name}",
        target=name,
        risk="low",
        risk_why="it no longer starts at boot",
        preconditions=(
            Condition(f"UnitFileState of {name}", "systemd", before.file_state,
                      "another state means that somebody changed it meanwhile",
                      f"unit.file_state {name}"),
            Condition(f"{name} runs", "systemd ActiveState", "no", "it is stopped first",
                      f"unit.running {name}", "==", after),
        ),
        effect=f"removes {'the link' if len(links) == 1 else 'the links'} {', '.join(links)}",
        cannot_undo="",
        undo="the same links, with their owner and time",
        proof=(
            Criterion("something starts it at boot", "systemd UnitFileState", "<=", 0, "",
                      f"unit.enabled {name}"),
        ),
        commands=(f"systemctl disable {quote(name)}",),
        parameters={"unit": name},
    )  # fmt: skip


def carry_out(step: Step, hands: Hands) -> dict[str, Any]:
    name = text_of(step, "unit")
    gone = disable(unit_state(name, hands.host), hands.writer, hands.deadline_s(60))
    return {"said": f"removed {', '.join(gone)}" if gone else f"{name} had no link left"}
