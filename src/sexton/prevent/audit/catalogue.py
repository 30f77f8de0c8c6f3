"""The catalogue of known agents, as data in `catalogue/*.toml`: what makes each one needed.

Adding an agent is adding an entry; one test reads every entry:

============== ===================================================================================
``id``         its name, `Subject.agent`
``title``      for a person; ``for``: what it does, as a clause
``units``      shell patterns of unit names; the first entry that fits a unit is it
``needed``     conditions of which any one makes it needed
``unneeded``   conditions of which any one, where no ``needed`` holds and each could be looked at,
               makes it unneeded: something positive, never the mere absence of users
``wrong_if``   what would make *unneeded* wrong; ``hint``: what its file should say
``base``       part of the distribution: not judged
============== ===================================================================================

A condition has a ``why`` and one of:

================ =================================================================================
``workload``     containers or jobs of that kind run here (`workloads.py`); never known of an image
``clients``      somebody else is connected to what it listens on; live only
``connections``  it is connected to another machine; live only
``file``         a file is there, and ``matches`` (a regular expression) where that is given
``holds``        a directory has a name ``like`` a shell pattern
``lacking``      none of these files is there; says nothing of an image that boots later
``lacking_like`` a directory has no name ``like`` a pattern, or is not there
``unit``         a unit of that name runs here, or starts at boot
``vendor``       the machine's maker, as a regular expression; live only. ``other_vendor``: not it
``image``        (``unneeded``) true where the condition says enough of an image, too
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
#: What an image without a kernel under it cannot show.
LIVE_ONLY = ("workload", "clients", "connections", "vendor", "other_vendor")
BASE = "base"


class Condition(NamedTuple):
    """`kind` of `KINDS`, and what it looks for."""

    kind: str
    value: Any
    why: str
    matches: str = ""
    like: str = ""
    image: bool = False

    @property
    def live_only(self) -> bool:
        """Can only a running node show it? Of what is under /proc, /sys and /dev as well."""
        places = self.value if isinstance(self.value, list) else [self.value]
        kernel = any(str(place).startswith(("/proc/", "/sys/", "/dev")) for place in places)
        return self.kind in LIVE_ONLY or kernel


class Agent(NamedTuple):
    """One entry."""

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
    """Every entry, in the order of the files' names."""
    folder = resources("sexton.prevent.audit").joinpath("catalogue")
    found: list[Agent] = []
    for each in sorted(folder.iterdir(), key=lambda item: item.name):
        if each.name.endswith(".toml"):
            told = tomllib.loads(each.read_text(encoding="utf-8"))
            found += [_agent(entry) for entry in told["agent"]]
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
