"""The catalogue of known agents, in `catalogue/*.toml`: what makes each one needed.

To add an agent, add an entry; a test checks every entry:

============== ===================================================================================
``id``         its name, `Subject.agent`
``title``      its display name; ``for``: what it does, as a clause
``units``      shell patterns of unit names; the first entry that matches a unit applies
``needed``     conditions, any of which makes it needed
``unneeded``   conditions, any of which makes it unneeded if every ``needed`` condition was checked
               and none holds: positive evidence, never just the absence of users
``wrong_if``   what would make *unneeded* wrong; ``hint``: what its unit file lacks
``base``       part of the distribution: not judged
============== ===================================================================================

A condition has a ``why`` and one of:

================ =================================================================================
``workload``     containers or jobs of that kind run here (`evidence.py`); live only
``clients``      something is connected to what it listens on; live only
``connections``  it is connected to another machine; live only
``file``         the file exists and, if given, ``matches`` a regular expression
``holds``        a directory has a name ``like`` a shell pattern
``lacking``      none of these files exists; not sufficient for an image, which may get them at boot
``lacking_like`` a directory has no name ``like`` a pattern, or does not exist
``unit``         a unit of that name runs here, or starts at boot
``vendor``       the machine's vendor, a regular expression; live only. ``other_vendor``: not it
``image``        (``unneeded``) true if the condition is sufficient for an image, too
================ =================================================================================
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files as resources
from typing import Any, NamedTuple

KINDS = (
    "workload",
    "clients",
    "connections",
    "file",
    "holds",
    "lacking",
    "lacking_like",
    "unit",
    "vendor",
    "other_vendor",
)
#: Conditions that an image cannot show.
LIVE_ONLY = ("workload", "clients", "connections", "vendor", "other_vendor")
BASE = "base"


class Condition(NamedTuple):
    """`kind` is one of `KINDS`, `value` what it checks for."""

    kind: str
    value: Any
    why: str
    matches: str = ""
    like: str = ""
    image: bool = False

    @property
    def live_only(self) -> bool:
        """Whether only a running node can show it; also true for files in /proc, /sys and /dev."""
        paths = self.value if isinstance(self.value, list) else [self.value]
        kernel = any(str(path).startswith(("/proc/", "/sys/", "/dev")) for path in paths)
        return self.kind in LIVE_ONLY or kernel


class Agent(NamedTuple):
    """One entry of the catalogue."""

    id: str
    title: str
    purpose: str
    units: tuple[str, ...]
    needed: tuple[Condition, ...]
    unneeded: tuple[Condition, ...]
    wrong_if: str
    hint: str
    base: bool


@cache
def agents() -> tuple[Agent, ...]:
    """Every entry, sorted by file name, the distribution's own units last."""
    folder = resources("sexton.prevent.audit").joinpath("catalogue")
    found: list[Agent] = []
    for path in sorted(folder.iterdir(), key=lambda item: item.name):
        if path.name.endswith(".toml"):
            entries = tomllib.loads(path.read_text(encoding="utf-8"))["agent"]
            found += [_agent(entry) for entry in entries]
    return tuple(sorted(found, key=lambda agent: agent.base))


@cache
def agent_of(unit: str) -> Agent | None:
    """The agent a unit belongs to.

    >>> agent_of("ecs.service").title, agent_of("my-own.service")
    ('Amazon ECS agent', None)
    """
    for agent in agents():
        if any(fnmatchcase(unit, pattern) for pattern in agent.units):
            return agent
    return None


def _agent(entry: Mapping[str, Any]) -> Agent:
    return Agent(
        id=entry["id"],
        title=entry["title"],
        purpose=entry["for"],
        units=tuple(entry["units"]),
        needed=tuple(map(_condition, entry.get("needed", ()))),
        unneeded=tuple(map(_condition, entry.get("unneeded", ()))),
        wrong_if=entry.get("wrong_if", ""),
        hint=entry.get("hint", ""),
        base=bool(entry.get("base", False)),
    )


def _condition(entry: Mapping[str, Any]) -> Condition:
    (kind,) = [key for key in entry if key in KINDS]
    matches = entry.get("matches", "")
    re.compile(matches)
    return Condition(
        kind,
        entry[kind],
        entry["why"],
        matches,
        entry.get("like", ""),
        bool(entry.get("image", kind == "unit")),
    )
