"""End a restart loop by a drop-in instead of a mask: the unit can still be started by hand."""

from __future__ import annotations

from shlex import quote
from typing import Any

from sexton.cure.keeping import keep_unit, put_unit_back
from sexton.cure.remedy import Hands, text_of
from sexton.cure.units import OVERRIDES, UnitBefore, override, override_place, unit_state
from sexton.model.plan import Condition, Criterion, Step

RECLAIMS = False
prepare = keep_unit
undo = put_unit_back
WHAT = "no-restart"


def propose(identity: str, before: UnitBefore, after: str) -> Step:
    """`after` is the step that stops it."""
    name = before.id
    place = override_place(before)
    wanted = OVERRIDES[WHAT]
    setting = " ".join(line for line in wanted.splitlines() if not line.startswith("#"))
    lines = " ".join(quote(line) for line in wanted.splitlines())
    return Step(
        id=identity,
        remedy="override_unit",
        title=f"override {name}: no more automatic restarts",
        target=name,
        risk="low",
        risk_why="it can still be started, by hand or at boot; then it fails once and stays down",
        preconditions=(
            Condition(f"{name} runs", "systemd ActiveState", "no", "it is stopped first",
                      f"unit.running {name}", "==", after),
        ),
        effect=f"writes {place}: {setting}",
        cannot_undo="",
        undo=f"removes {place}",
        proof=(
            Criterion("it runs or waits to restart", "systemd ActiveState", "<=", 0, "",
                      f"unit.running {name}"),
        ),
        commands=(
            f"mkdir -p {quote(place.rpartition('/')[0])}",
            f"printf '%s\\n' {lines} > {quote(place)}",
            "systemctl daemon-reload",
        ),
        parameters={"unit": name},
    )  # fmt: skip


def carry_out(step: Step, hands: Hands) -> dict[str, Any]:
    before = unit_state(text_of(step, "unit"), hands.host)
    return {"said": f"wrote {override(before, hands.writer, WHAT, hands.deadline_s(60))}"}
