"""What would be done about a diagnosis: steps, each with risk, undo and proof.

A plan is data. It can be printed, saved, reviewed by someone else and applied later; its `hash`
proves that what is applied is what was read. Making a plan changes nothing.

Texts are escaped when a plan is built, as in a `Finding`; `parameters` keep names as the kernel
reports them, because apply opens them again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from typing import Any, TypeVar

from sexton.model.text import escape, printable

SCHEMA = "sexton.plan/1"
RISKS = ("none", "low", "medium", "high")
Value = str | int | float | bool


class PlanError(ValueError):
    """Not a valid plan."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that must still be true when a step is applied; it is read again then.

    `probe` names the reading ("unit.active_state ecs.service"), `test` the comparison with
    `expected` ("==", "!=", "<=", ">=", or "in" a space-separated list), which was read when the
    plan was made. `after` names the step that makes it true, if it cannot be true before.
    `read_from` and `why` are for display.
    """

    what: str
    read_from: str
    expected: str
    why: str
    probe: str = ""
    test: str = "=="
    after: str = ""

    def __post_init__(self) -> None:
        escape(self, "what", "read_from", "why")


@dataclass(frozen=True, slots=True)
class Criterion:
    """What is read after a step, and the value that proves success.

    `probe` names the reading, as in a `Condition`; without one the step measures it itself.
    """

    what: str
    read_from: str
    test: str
    value: float
    unit: str
    probe: str = ""

    def __post_init__(self) -> None:
        escape(self, "what", "read_from", "unit")


@dataclass(frozen=True, slots=True)
class Refusal:
    """What this plan will not do, why, and the option that allows it ("" if none does)."""

    target: str
    reason: str
    override: str = ""

    def __post_init__(self) -> None:
        escape(self, "target", "reason", "override")


@dataclass(frozen=True, slots=True)
class Step:
    """One change. The order of steps is part of the plan.

    `remedy` is the stem of the module in `sexton.cure.remedies` that carries it out; `effect` says
    exactly what is written where; `cannot_undo` what is lost permanently ("" if nothing). A step
    that is not `automatic` is only printed.
    """

    id: str
    remedy: str
    title: str
    target: str
    risk: str
    risk_why: str
    preconditions: tuple[Condition, ...]
    effect: str
    cannot_undo: str
    undo: str
    proof: tuple[Criterion, ...]
    commands: tuple[str, ...]
    parameters: Mapping[str, Value] = field(default_factory=dict)
    automatic: bool = True

    def __post_init__(self) -> None:
        if self.risk not in RISKS:
            raise PlanError(f"risk {printable(self.risk)!r} is not one of {', '.join(RISKS)}")
        escape(self, "title", "target", "risk_why", "effect", "cannot_undo", "undo", "commands")


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything to be done on one node in one boot.

    `boot_id` binds it to the running kernel: after a reboot there is nothing to free and every
    reading has changed. `evidence_until_unix` is the end of the diagnosed window. `baseline` is
    what that diagnosis measured, for `verify` to compare with.
    """

    node: str
    boot_id: str
    made_unix: float
    evidence_until_unix: float
    diagnosis_root: str
    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    baseline: Mapping[str, Value] = field(default_factory=dict)
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        escape(self, "node", "diagnosis_root", "notes")

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON: `apply --confirm` takes it or its first digits."""
        import hashlib  # late: reading a recording loads this module, but hashes nothing

        return hashlib.sha256(canonical(self).encode("ascii")).hexdigest()

    @property
    def automatic(self) -> tuple[Step, ...]:
        """The steps that apply carries out."""
        return tuple(step for step in self.steps if step.automatic)


def canonical(plan: Plan) -> str:
    """A unique spelling: sorted keys, no whitespace, ASCII."""
    return json.dumps(asdict(plan), sort_keys=True, separators=(",", ":"), allow_nan=False)


def as_json(plan: Plan) -> dict[str, Any]:
    """The plan as written to a file, with its hash."""
    return {**asdict(plan), "hash": plan.hash}


_T = TypeVar("_T")


def from_json(value: object) -> Plan:
    """The plan of a parsed file; `PlanError` if it is malformed or was modified."""
    whole = _object(value, "plan")
    if whole.get("schema") != SCHEMA:
        raise PlanError(f"schema {printable(str(whole.get('schema')))!r} is not {SCHEMA}")
    stated = whole.pop("hash", None)
    whole["steps"] = tuple(_step(step) for step in _list(whole, "steps"))
    whole["refusals"] = tuple(_built(Refusal, refusal) for refusal in _list(whole, "refusals"))
    whole["notes"] = tuple(_list(whole, "notes"))
    whole["baseline"] = _values(whole, "baseline")
    plan = _built(Plan, whole)
    if stated != plan.hash:
        raise PlanError("hash mismatch: it was changed after it was made")
    return plan


def _step(value: object) -> Step:
    step = _object(value, "step")
    step["preconditions"] = tuple(
        _built(Condition, condition) for condition in _list(step, "preconditions")
    )
    step["proof"] = tuple(_built(Criterion, criterion) for criterion in _list(step, "proof"))
    step["commands"] = tuple(_list(step, "commands"))
    step["parameters"] = _values(step, "parameters")
    return _built(Step, step)


_PLAIN: Mapping[str, tuple[type, ...]] = {"str": (str,), "float": (int, float), "bool": (bool,)}


def _built(kind: type[_T], value: object) -> _T:
    given = _object(value, kind.__name__.lower())
    known = {column.name: str(column.type) for column in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(given) - set(known)):
        raise PlanError(f"unknown field {printable(str(unknown[0]))!r} in {kind.__name__.lower()}")
    for name, number in given.items():
        plain = _PLAIN.get(known[name])
        if plain is not None and (
            not isinstance(number, plain) or (known[name] == "float" and isinstance(number, bool))
        ):
            raise PlanError(f"{name} of a {kind.__name__.lower()} is not a {known[name]}")
        if isinstance(number, float) and not isfinite(number):
            raise PlanError(f"{name} of a {kind.__name__.lower()} is not a finite number")
        if known[name] == "tuple[str, ...]" and not all(isinstance(item, str) for item in number):
            raise PlanError(f"{name} of a {kind.__name__.lower()} must contain only strings")
    try:
        return kind(**given)
    except TypeError as error:
        raise PlanError(f"{kind.__name__.lower()}: {error}") from None


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PlanError(f"{what} is missing or not an object")
    return dict(value)


def _values(owner: Mapping[str, Any], name: str) -> dict[str, Value]:
    values = _object(owner.get(name), name)
    if any(not isinstance(value, (str, int, float, bool)) for value in values.values()):
        raise PlanError(f"{name}: not a scalar value")
    if any(isinstance(value, float) and not isfinite(value) for value in values.values()):
        raise PlanError(f"{name}: not a finite number")
    return values


def _list(owner: Mapping[str, Any], name: str) -> list[Any]:
    value = owner.get(name)
    if not isinstance(value, list):
        raise PlanError(f"{name} is not a list")
    return value
