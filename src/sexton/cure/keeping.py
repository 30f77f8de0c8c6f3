"""What the remedies of a unit have in common: how it stood is kept, and put back by the undo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sexton.cure.remedy import Hands, unit_of
from sexton.cure.units import before_from_json, restore, unit_state
from sexton.model.plan import Step
from sexton.model.text import printable


def keep_unit(step: Step, hands: Hands) -> dict[str, Any]:
    """`prepare` of a step that changes the files of one unit."""
    return {"unit": unit_state(unit_of(step, hands), hands.host).as_json()}


def put_unit_back(before: Mapping[str, Any], hands: Hands) -> list[str]:
    """`undo` of such a step."""
    return put_back(before["unit"], hands)


def put_back(kept: Mapping[str, Any], hands: Hands) -> list[str]:
    """A unit as a journal kept it, and what that took, in lines for a person."""
    unit = before_from_json(kept)
    if not hands.same_boot:
        lasting = tuple(each for each in unit.entries if not each.path.startswith("/run/"))
        unit = replace(unit, entries=lasting)
    done = restore(unit, hands.writer)
    lines = [f"made again: {printable(path)}" for path in done.made]
    lines += [f"removed: {printable(path)}" for path in done.removed]
    lines += [f"left alone: {printable(text)}" for text in done.left]
    if done.started:
        lines.append(f"started: {printable(unit.id)}")
    return lines
