"""One module per rule: its docstring is its page, `check` looks at a place.

The file's stem is the rule's id, in the policy, in waivers, in SARIF and in JUnit.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import NamedTuple, Protocol

from sexton.prevent.gate.model import Checked, Place, Settings
from sexton.prevent.gate.policy import rule_ids


class _Check(Protocol):
    def __call__(self, place: Place, settings: Settings) -> Checked: ...


class Rule(NamedTuple):
    """What is known of a rule."""

    id: str
    title: str
    page: str
    check: _Check


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the built-in policy, which names them all."""
    found = []
    for name in rule_ids():
        module = importlib.import_module(f"{__name__}.{name}")
        page = (module.__doc__ or name).strip()  # python -OO has no docstrings
        found.append(Rule(name, page.splitlines()[0].rstrip("."), page, module.check))
    return tuple(found)
