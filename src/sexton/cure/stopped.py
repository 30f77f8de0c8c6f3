"""What a plan's first step takes along: what lies below a unit that it stops."""

from __future__ import annotations

from collections.abc import Collection

from sexton.detect.detectors.cgroup_churn import families
from sexton.detect.stems import join
from sexton.model.window import Window


def outlasting(path: str, stopped: Collection[str]) -> str:
    """The cgroup itself, or where a unit that is stopped first takes it away, what is above that.

    >>> outlasting("/system.slice/ecs.service/tasks", ["ecs.service"])
    '/system.slice'
    >>> outlasting("/system.slice", ["ecs.service"]), outlasting("/a.service", ["a.service"])
    ('/system.slice', '/')
    """
    parts = path.split("/")
    ends = [parts.index(name) for name in stopped if name in parts]
    return ("/".join(parts[: min(ends)]) or "/") if ends else path


def stops_churning(window: Window, stopped: Collection[str]) -> bool:
    """Did all that comes and goes in a loop do so below units that are stopped anyway?"""
    died = [join(each.path, name) for each in families(window) for name in each.names]
    return bool(died) and all(outlasting(path, stopped) != path for path in died)
