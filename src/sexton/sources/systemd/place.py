"""A unit's place in the cgroup tree, also while it has no cgroup.

systemd gives ``ControlGroup`` as an empty string while a unit waits to restart (seen on 252:
``activating (auto-restart)``), which is most of the time in a fast crash loop. Then the last known
path is used, else the slice's, whose name encodes its path: each dash is a level
(systemd.slice(5)).

>>> slice_path("system.slice")
'/system.slice'
>>> slice_path("a-b-c.slice")
'/a.slice/a-b.slice/a-b-c.slice'
>>> slice_path("-.slice")
''
>>> locate("", "system-getty.slice", "getty@tty1.service")
('/system.slice/system-getty.slice/getty@tty1.service', 'slice + name')
>>> locate("/init.scope/x.service", None, "x.service")
('/init.scope/x.service', 'systemd')
"""

from __future__ import annotations

from dataclasses import replace

from sexton.model.rows.unit import Unit

SYSTEMD = "systemd"
LAST_KNOWN = "last known"
SLICE_AND_NAME = "slice + name"
UNKNOWN = ""


def slice_path(name: str) -> str:
    """The path of a slice; empty for the root slice."""
    stem = name.removesuffix(".slice")
    if stem in ("", "-"):
        return ""
    parts = stem.split("-")
    return "".join(f"/{'-'.join(parts[:depth])}.slice" for depth in range(1, len(parts) + 1))


def locate(control_group: str | None, slice_name: str | None, unit: str) -> tuple[str | None, str]:
    """A unit's cgroup path and its origin."""
    if control_group:
        return control_group, SYSTEMD
    if slice_name:
        return f"{slice_path(slice_name)}/{unit}", SLICE_AND_NAME
    return None, UNKNOWN


class Memory:
    """The last cgroup path that systemd reported for each unit."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def knows(self, unit: str) -> bool:
        return unit in self._known

    def apply(self, unit: Unit) -> Unit:
        """`unit` with its last known path, if systemd gives none now."""
        if unit.cgroup is not None and unit.cgroup_origin == SYSTEMD:
            self._known[unit.name] = unit.cgroup
            return unit
        known = self._known.get(unit.name)
        if known is None:
            return unit
        return replace(unit, cgroup=known, cgroup_origin=LAST_KNOWN)
