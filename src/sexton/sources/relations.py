"""Who needs a unit, by systemd itself: the other direction of every dependency, over D-Bus.

`RequiredBy`, `BoundBy`, `WantedBy` … are properties of ``org.freedesktop.systemd1.Unit``
(org.freedesktop.systemd1(5)); what busctl shows of a daemon that two services lean on::

    .RequiredBy   property  as  2 "a.service" "b.service"
    .WantedBy     property  as  1 "multi-user.target"

Quirks: units that are not loaded are in nobody's list, so these are the dependants *now*. A target
that wants a unit is how it was enabled and no user of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from sexton.host.host import Host
from sexton.sources.systemd.bus import SYSTEMD, Call, Refusal, get, open_bus

DEADLINE_S = 10.0
#: More than any node has loaded; each costs half a dozen calls.
MOST_UNITS = 1_500
#: Those without which the dependant is stopped or cannot start, and those that merely ask for it.
STRONG = ("RequiredBy", "BoundBy", "RequisiteOf", "UpheldBy")
WEAK = ("WantedBy", "TriggeredBy", "ConsistsOf")
_ROOT = "/org/freedesktop/systemd1"
_UNIT = f"{SYSTEMD}.Unit"
_MANAGER = f"{SYSTEMD}.Manager"


class Relations(NamedTuple):
    """The units that lean on one, and those that only start it."""

    strong: tuple[str, ...]
    weak: tuple[str, ...]


def relations(
    host: Host, units: Iterable[str], deadline_s: float = DEADLINE_S
) -> dict[str, Relations]:
    """By unit; one that went away meanwhile is not in it."""
    deadline = time.monotonic() + deadline_s
    names = list(units)[:MOST_UNITS]
    bus = open_bus(host, deadline)
    try:
        calls = [Call(_ROOT, _MANAGER, "GetUnit", "s", (name,)) for name in names]
        answers = bus.calls(calls, deadline)
        paths = [
            (name, str(answer[0]))
            for name, answer in zip(names, answers, strict=True)
            if not isinstance(answer, Refusal) and answer
        ]
        wanted = [get(path, _UNIT, key) for _, path in paths for key in (*STRONG, *WEAK)]
        values = bus.properties(wanted, deadline)
    finally:
        bus.close()
    width = len(STRONG) + len(WEAK)
    found = {}
    for index, (name, _) in enumerate(paths):
        given = values[width * index : width * (index + 1)]
        found[name] = Relations(_names(given[: len(STRONG)]), _names(given[len(STRONG) :]))
    return found


def _names(values: Iterable[Any]) -> tuple[str, ...]:
    """Those of several lists, once each; a property this systemd does not have is no list."""
    lists = (value for value in values if isinstance(value, list | tuple))
    return tuple(dict.fromkeys(str(name) for value in lists for name in value))
