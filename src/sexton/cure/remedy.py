"""What a remedy is: it proposes a step, and can prepare, carry out and undo one.

A remedy is a module in `sexton.cure.remedies`; its stem is its name in plans and journals. It has

- ``propose(…) -> Step``: the step in words and values; changes nothing;
- ``prepare(step, hands) -> dict``: all that an undo needs, read before anything is touched;
- ``carry_out(step, hands) -> dict``: do it; `said` in what it gives back is a line for a person,
  `told`, if it is there, a list of further ones, and `skipped` says that it was not needed;
- ``undo(before, hands) -> list[str]``: put back what `prepare` read; twice is as good as once.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from sexton.cure import remedies
from sexton.cure.probes import Probes
from sexton.cure.writer import Writer
from sexton.errors import CommandError
from sexton.host.host import Host
from sexton.model.plan import Step
from sexton.model.text import printable


@dataclass(slots=True)
class Hands:
    """What a remedy works with. `stop` says why to stop now, or nothing; `tell` takes a line.

    `dry`: the writer does nothing, so there is nothing to wait for or to measure. `same_boot` is
    false where an apply of an earlier boot is undone: what was in /run then is not missing now.
    """

    host: Host
    writer: Writer
    probes: Probes
    stop: Callable[[], str]
    tell: Callable[[str], None]
    seconds_left: Callable[[], float]
    dry: bool = False
    same_boot: bool = True

    def deadline_s(self, most: float) -> float:
        """As long as something may take, within what is left."""
        return max(1.0, min(most, self.seconds_left()))


class Remedy(Protocol):
    """The part of a module that the executor uses; `RECLAIMS` where memory pressure is ours."""

    RECLAIMS: bool

    def prepare(self, step: Step, hands: Hands) -> dict[str, Any]: ...

    def carry_out(self, step: Step, hands: Hands) -> dict[str, Any]: ...

    def undo(self, before: Mapping[str, Any], hands: Hands) -> list[str]: ...


def names() -> list[str]:
    """Every remedy there is."""
    return sorted(each.name for each in pkgutil.iter_modules(remedies.__path__))


def remedy(name: str) -> Remedy:
    """By name; a plan may come from anywhere, so only what is in the folder is ever imported."""
    if name not in names():
        raise CommandError(f"no remedy {printable(name)!r}: the plan is of another Sexton")
    return cast("Remedy", importlib.import_module(f"{remedies.__name__}.{name}"))


def unit_of(step: Step, hands: Hands) -> str:
    """The unit a step is about, unless it is protected: asked here and not only of the plan, which
    is a file that anybody may have written."""
    name = text_of(step, "unit")
    why = hands.probes.unit(name).protection(hands.probes.rules)
    if why:
        raise CommandError(f"{why}; never touched, whatever a plan says")
    return name


def told_in(outcome: Mapping[str, Any]) -> tuple[str, ...]:
    """The further lines of what a remedy gave back, also as a journal kept it.

    >>> told_in({"told": ["a", "b\\x1b"]}), told_in({"said": "x"}), told_in({"told": 7})
    (('a', 'b\\\\x1b'), (), ())
    """
    told = outcome.get("told", ())
    return tuple(printable(str(each)) for each in told) if isinstance(told, list | tuple) else ()


def text_of(step: Step, name: str) -> str:
    """A parameter that has to be a text."""
    value = step.parameters.get(name)
    if not isinstance(value, str) or not value:
        raise CommandError(f"step {step.id}: no {name} in it")
    return value
