"""What a remedy is: it proposes a step, and can prepare, carry out and undo it.

A remedy is a module in `sexton.cure.remedies`; its stem is its name in plans and journals. It has

- ``propose(…) -> Step``: describes the step; changes nothing;
- ``prepare(step, context) -> dict``: reads everything an undo needs, before anything is changed;
- ``carry_out(step, context) -> dict``: does it; in the outcome `said` is a line for display, `told`
  an optional list of further lines, `skipped` means that nothing had to be done, `proven` is
  whether its proof holds and the reading, if the step measures that itself;
- ``undo(before, context) -> list[str]``: restores what `prepare` read; may be repeated.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from sexton.cure import remedies
from sexton.cure.nodes import Cluster
from sexton.cure.preconditions import Probes
from sexton.cure.units import restore, snapshot_from_json, snapshot_unit
from sexton.cure.writer import Writer
from sexton.errors import CommandError
from sexton.host.host import Host
from sexton.model.plan import Step
from sexton.model.text import printable


@dataclass(slots=True)
class StepContext:
    """What a remedy works with. `stop` returns a reason to stop, or ""; `progress` takes a line.

    `dry`: the writer changes nothing, so there is nothing to wait for or measure. `same_boot` is
    false when undoing an apply of an earlier boot: entries in /run are then not expected.
    `cluster` is `None` without a credential. `forbidden` asks those who may forbid the next change
    of a long step; it may take a request, `stop` must not.
    """

    host: Host
    writer: Writer
    probes: Probes
    stop: Callable[[], str]
    progress: Callable[[str], None]
    seconds_left: Callable[[], float]
    dry: bool = False
    same_boot: bool = True
    cluster: Cluster | None = None
    forbidden: Callable[[], str] = lambda: ""

    def deadline_s(self, most: float) -> float:
        """At most `most` seconds, within the remaining time."""
        return max(1.0, min(most, self.seconds_left()))


class Remedy(Protocol):
    """The interface of a remedy module; `RECLAIMS` if it causes memory pressure itself."""

    RECLAIMS: bool

    def prepare(self, step: Step, context: StepContext) -> dict[str, Any]: ...

    def carry_out(self, step: Step, context: StepContext) -> dict[str, Any]: ...

    def undo(self, before: Mapping[str, Any], context: StepContext) -> list[str]: ...


def remedy_names() -> list[str]:
    """All remedies."""
    return sorted(module.name for module in pkgutil.iter_modules(remedies.__path__))


def remedy(name: str) -> Remedy:
    """By name. Plans are untrusted input: only modules in this package are imported."""
    if name not in remedy_names():
        raise CommandError(
            f"unknown remedy {printable(name)!r}: the plan was made by another version of Sexton"
        )
    return cast("Remedy", importlib.import_module(f"{remedies.__name__}.{name}"))


def unprotected_unit(step: Step, context: StepContext) -> str:
    """The step's unit, after checking again that it is not protected: a plan is a file that anyone
    may have written."""
    name = text_parameter(step, "unit")
    why = context.probes.unit(name).protection(context.probes.rules)
    if why:
        raise CommandError(f"{why}; no plan may change it")
    return name


def detail_lines(outcome: Mapping[str, Any]) -> tuple[str, ...]:
    """Further display lines of an outcome, also one read from a journal.

    >>> detail_lines({"told": ["a", "b\\x1b"]}), detail_lines({"told": 7})
    (('a', 'b\\\\x1b'), ())
    """
    lines = outcome.get("told", ())
    return tuple(printable(str(line)) for line in lines) if isinstance(lines, list | tuple) else ()


def text_parameter(step: Step, name: str) -> str:
    """A parameter that must be a non-empty string."""
    value = step.parameters.get(name)
    if not isinstance(value, str) or not value:
        raise CommandError(f"step {step.id}: parameter {name} is missing")
    return value


def save_unit(step: Step, context: StepContext) -> dict[str, Any]:
    """`prepare` for steps that change the files of one unit."""
    return {"unit": snapshot_unit(unprotected_unit(step, context), context.host).as_json()}


def restore_unit(before: Mapping[str, Any], context: StepContext) -> list[str]:
    """`undo` for such steps."""
    return restore_saved(before["unit"], context)


def nothing_to_undo(_before: Mapping[str, Any], _context: StepContext) -> list[str]:
    """`undo` for steps that leave nothing behind."""
    return []


def restore_saved(saved: Mapping[str, Any], context: StepContext) -> list[str]:
    """Restore a unit saved in a journal; returns what was done, as lines for display."""
    unit = snapshot_from_json(saved)
    if not context.same_boot:
        persistent = tuple(entry for entry in unit.entries if not entry.path.startswith("/run/"))
        unit = replace(unit, entries=persistent)
    done = restore(unit, context.writer)
    lines = [f"restored: {printable(path)}" for path in done.made]
    lines += [f"removed: {printable(path)}" for path in done.removed]
    lines += [f"not restored: {printable(text)}" for text in done.left]
    if done.started:
        lines.append(f"started: {printable(unit.id)}")
    return lines
