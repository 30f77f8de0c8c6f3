"""One module per rule: its docstring is the rule's page, `check` runs it.

The file's stem is the rule's id in the policy, in waivers, in SARIF and in JUnit.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import NamedTuple, Protocol

from sexton.prevent.gate.model import Checked, Settings
from sexton.prevent.gate.policy import rule_ids
from sexton.prevent.gate.target import Target


class _Check(Protocol):
    def __call__(self, target: Target, settings: Settings) -> Checked: ...


class Rule(NamedTuple):
    """A rule; `title` is the first line of `page`."""

    id: str
    title: str
    page: str
    check: _Check


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, in the order of the built-in policy, which lists them all."""
    rules = []
    for name in rule_ids():
        module = importlib.import_module(f"{__name__}.{name}")
        page = (module.__doc__ or name).strip()  # python -OO strips docstrings
        rules.append(Rule(name, page.splitlines()[0].rstrip("."), page, module.check))
    return tuple(rules)
