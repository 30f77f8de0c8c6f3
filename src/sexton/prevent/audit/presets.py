r"""What an image's first boot will enable: systemd.preset(5).

Without ``/etc/machine-id``, or with ``uninitialized`` in it (machine-id(5), "First boot
semantics"), systemd enables what the presets allow, and a unit that no rule names is allowed.

>>> rules = parse("# x\ndisable ecs.service\nenable getty@.service tty1\nenable *\n")
>>> [allows(rules, unit) for unit in ("ecs.service", "ssh.service")]
[False, True]
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from sexton.prevent.audit.lookup import UnitTree

_FOLDERS = (
    "/etc/systemd/system-preset",
    "/run/systemd/system-preset",
    "/usr/local/lib/systemd/system-preset",
    "/usr/lib/systemd/system-preset",
    "/lib/systemd/system-preset",
)
_MOST_RULES = 5_000
_MOST_PATTERN = 300


class Rule(NamedTuple):
    """One line; the first that fits decides."""

    enable: bool
    pattern: str


def first_boot(tree: UnitTree) -> bool:
    """Will systemd take the next boot for the first one?"""
    if tree.has("/etc/machine-id") is False:
        return True
    return (tree.text("/etc/machine-id", 4096) or "").strip() == "uninitialized"


def rules_of(tree: UnitTree) -> list[Rule]:
    """All rules, in order; a file hides those of the same name in later folders."""
    chosen: dict[str, str] = {}
    for folder in _FOLDERS:
        for name in tree.listing(folder):
            if name.endswith(".preset"):
                chosen.setdefault(name, f"{folder}/{name}")
    rules: list[Rule] = []
    for _, path in sorted(chosen.items()):
        rules += parse(tree.text(path) or "")
    return rules[:_MOST_RULES]


def parse(text: str) -> list[Rule]:
    """``enable`` and ``disable`` lines; others are passed over."""
    rules = []
    for line in text.split("\n"):
        words = line.split()
        if len(words) >= 2 and words[0] in ("enable", "disable") and len(words[1]) < _MOST_PATTERN:
            rules.append(Rule(words[0] == "enable", words[1]))
    return rules


def allows(rules: Sequence[Rule], unit: str) -> bool:
    """Would a preset enable this unit?"""
    return next((rule.enable for rule in rules if fnmatchcase(unit, rule.pattern)), True)
