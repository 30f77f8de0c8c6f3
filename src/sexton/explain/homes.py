"""Findings about a task's unit or cgroup, and about the tasks of a unit or cgroup.

A finding names what it is about as it saw it: the unit that takes the CPU time, or the task that
holds a core. The user may ask about the other one. Which cgroup a task was in is known from the
reading nearest to the finding; a task that lived between two readings has no known cgroup.

A unit or container contains everything below its cgroup. A slice does not: what is wrong with
`system.slice` is not wrong with each of its services.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sexton.detect.stacks import cgroup_by_pid
from sexton.detect.stems import container, unit_of
from sexton.explain.subject import is_named
from sexton.model.finding import Finding
from sexton.model.rows.task import Process, Thread
from sexton.model.text import printable
from sexton.model.why import Subject
from sexton.model.window import Window

_KINDS = ("unit", "cgroup")
_PID = re.compile(r"\[([0-9]+)(?:/[0-9]+)?\]$", re.ASCII)


def is_home(path: str, kind: str, name: str) -> bool:
    """Is this unit or cgroup of a finding the one at `path`, below it, or a unit or container that
    contains it?

    >>> inner = "/system.slice/a.service/inner"
    >>> is_home(inner, "unit", "a.service"), is_home(inner, "cgroup", "/system.slice/a.service")
    (True, True)
    >>> is_home(inner, "cgroup", inner + "/x"), is_home(inner, "cgroup", "/system.slice")
    (True, False)
    >>> is_home(inner, "unit", "b.service"), is_home("/", "cgroup", "/a")
    (False, False)
    """
    if path == "/":
        return False
    if kind == "unit":
        return name in path.split("/")
    if kind != "cgroup":
        return False
    below = name == path or name.startswith(path + "/")
    contains = path.startswith(name.rstrip("/") + "/")
    return below or (contains and (container(name) or unit_of(name)) is not None)


def concerns_home(finding: Finding, subject: Subject, window: Window) -> bool:
    """Is the finding about the unit or cgroup of the subject, or about a task in it?"""
    named = finding.entities
    if subject.kind == "cgroup" and _is_at(subject.name, finding):
        return True
    if not any(named.get(kind) for kind in (_KINDS if subject.kind == "task" else ("task",))):
        return False
    if subject.kind not in ("task", *_KINDS):
        return False
    places = cgroup_by_pid(window, window.mono(window.end if finding.end is None else finding.end))
    if subject.kind == "task":
        pids = window.keep(("pids", subject.name), lambda: {*_pids(subject, window)})
        homes = {printable(path) for pid, path in places.items() if pid in pids}
        return any(_is_at(home, finding) for home in homes)
    found = (match for name in named["task"] if (match := _PID.search(name)))
    homes = {printable(places.get(int(match[1]), "/")) for match in found}
    return any(is_named(subject, "cgroup", home) for home in homes)


def _is_at(path: str, finding: Finding) -> bool:
    return any(
        is_home(path, kind, name) for kind in _KINDS for name in finding.entities.get(kind, ())
    )


def _pids(subject: Subject, window: Window) -> Iterator[int]:
    for comm, pid in window.distinct(Process, ("comm", "pid")):
        if is_named(subject, "task", printable(f"{comm}[{pid}]")):
            yield pid
    for comm, pid, tid in window.distinct(Thread, ("comm", "pid", "tid")):
        if is_named(subject, "task", printable(f"{comm}[{pid}/{tid}]")):
            yield pid
