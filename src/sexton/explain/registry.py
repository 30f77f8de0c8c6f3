"""How a link declares itself, and how they are all found.

A link is one module in `sexton.explain.links`, named as a sentence: cause, verb, effect. Its
docstring holds the written rule by which it is *proven*, *likely* or *possible*::

    @link(cause="crash_looping_unit", effect="zombie_memcgs")
    def join(cause: Finding, effect: Finding, window: Window) -> Link | None: ...

A link needs something both findings share (the same core, unit, queue) and the right order in
time; `None` says that they have nothing to do with each other.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import sexton.explain.links
from sexton.model.chain import Link
from sexton.model.finding import Finding
from sexton.model.window import Window

Join = Callable[[Finding, Finding, Window], Link | None]
_PACKAGE = "sexton.explain.links."


class Rule(NamedTuple):
    """A possible link between two symptoms."""

    id: str
    cause: str
    effect: str
    join: Join


_found: dict[str, Rule] = {}


def link(*, cause: str, effect: str) -> Callable[[Join], Join]:
    """Register the decorated function under its module's stem."""

    def register(join: Join) -> Join:
        name = join.__module__.removeprefix(_PACKAGE)
        _found[name] = Rule(name, cause, effect, join)
        return join

    return register


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every link there is, by walking the folder; sorted by id."""
    for module in pkgutil.iter_modules(sexton.explain.links.__path__, _PACKAGE):
        importlib.import_module(module.name)
    return tuple(_found[name] for name in sorted(_found))
