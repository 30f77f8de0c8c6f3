"""Keep a unit from being started by anybody: by hand, by a socket, by another unit."""

from __future__ import annotations

from shlex import quote
from typing import Any

from sexton.cure.keeping import keep_unit, put_unit_back
from sexton.cure.remedy import Hands, text_of
from sexton.cure.units import UnitBefore, mask, mask_place, unit_state
from sexton.model.plan import Condition, Criterion, Step

RECLAIMS = False
prepare = keep_unit
undo = put_unit_back


def propose(identity: str, before: UnitBefore, after: str) -> Step:
    """`after` is the step that stops it; `CommandError` where no place for a mask would work."""
    name = before.id
    place = mask_place(before)
    plain = place == f"/etc/systemd/system/{name}"
    by_hand = (f"systemctl mask {quote(name)}",)
    link = (f"mkdir -p {quote(place.rpartition('/')[0])}", f"ln -s /dev/null {quote(place)}",
            "systemctl daemon-reload")  # fmt: skip
    return Step(
        id=identity,
        remedy="mask_unit",
        title=f"mask {name}",
        target=name,
        risk="low",
        risk_why="nothing can start it until it is unmasked; who tries is told so",
        preconditions=(
            Condition(f"{name} is masked", "systemd LoadState", "no",
                      "somebody masked it meanwhile", f"unit.masked {name}"),
            Condition(f"{name} runs", "systemd ActiveState", "no", "it is stopped first",
                      f"unit.running {name}", "==", after),
        ),
        effect=f"makes the link {place} -> /dev/null",
        cannot_undo="",
        undo=f"removes {place}",
        proof=(Criterion("it is masked", "systemd LoadState", ">=", 1, "", f"unit.masked {name}"),),
        commands=by_hand if plain else link,
        parameters={"unit": name},
    )  # fmt: skip


def carry_out(step: Step, hands: Hands) -> dict[str, Any]:
    name = text_of(step, "unit")
    made = mask(unit_state(name, hands.host), hands.writer, hands.deadline_s(60))
    return {"said": f"made {made} -> /dev/null" if made else f"{name} was masked already"}
