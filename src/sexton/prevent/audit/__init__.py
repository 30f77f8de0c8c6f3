"""Finds units that run, or will run, although nothing needs them.

`audit` judges a live node or an image by its unit files and by the evidence (docs/audit.md).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from sexton.cure.protected import Rule
from sexton.host.host import Host
from sexton.model.audit import Audit, EnabledUnit, KubeletProblem
from sexton.model.rows.cgroup import CgroupEvent, WalkCost
from sexton.model.rows.node import Node
from sexton.model.rows.task import Process, ProcessCgroup
from sexton.model.rows.unit import RestartMark, ServiceManager, Unit
from sexton.model.window import Window
from sexton.prevent.audit.enabled import Enabled
from sexton.prevent.audit.evidence import Evidence, gather
from sexton.prevent.audit.judge import Context, Judge
from sexton.prevent.audit.unit_files import UnitTree
from sexton.prevent.kubelet import KubeletFile, check_flags, differences, flags_of, inspect
from sexton.sources.registry import Source, sources_of
from sexton.sources.services import usage_source


def wanted_sources(kubelet: bool = False) -> tuple[Source, ...]:
    """The sources a live audit needs; beside a `kubelet` also what its reads cost."""
    kinds = (Unit, RestartMark, Node, Process, ProcessCgroup, CgroupEvent)
    costs = sources_of(WalkCost) if kubelet else ()
    return (*sources_of(*kinds), *costs, usage_source())


def audit(
    host: Host,
    window: Window | None = None,
    protected: Sequence[Rule] = (),
    running: KubeletFile | None = None,
) -> Audit:
    """Judge a live node (`window` holds what was sampled of it) or an image's tree. `running`: what
    its kubelet runs with, if that was given."""
    tree = UnitTree(host.files)
    enabled = Enabled(tree, _systemd(window))
    seen = gather(host, window) if window is not None else Evidence()
    by_name = {unit.name: unit for unit in enabled.units}
    starting = {unit.name for unit in enabled.units if unit.at_boot}
    judge = Judge(Context(host.files, seen, _running(seen) | starting), tuple(protected))
    names = _judged(enabled.units, seen)
    by_name |= {name: enabled.manual(name) for name in names if name not in by_name}
    problems, unread = _kubelet(host, running, window)
    place = host.root
    if window is not None:
        place = window.node.hostname if window.node else "this node"
    return Audit(
        place=place,
        live=window is not None,
        made_unix=time.time(),
        subjects=tuple(judge.subject(name, by_name.get(name)) for name in names),
        workloads=seen.workloads,
        watched_s=seen.seconds,
        notes=tuple(tree.notes),
        unseen=(*seen.unseen, *enabled.unseen, *unread),
        unread=tuple(tree.unread),
        kubelet=problems,
        has_units=tree.has_units if window is None else bool(seen.units),
    )


def _kubelet(
    host: Host, running: KubeletFile | None, window: Window | None
) -> tuple[tuple[KubeletProblem, ...], tuple[str, ...]]:
    """Problems in kubelet's configuration and flags, and files that could not be read."""
    flags = flags_of(host)
    files = inspect(host, flags)
    found = [
        KubeletProblem(
            problem.level,
            f"{problem.field}: {problem.message}".lstrip(": "),
            file.path,
            problem.line,
        )
        for file in files
        for problem in file.problems
    ]
    if running is not None:
        known = {problem.field for file in files for problem in file.problems}
        new = (each for each in running.problems if each.field not in known)
        found += [
            KubeletProblem(each.level, f"{each.field}: {each.message}", running.path)
            for each in (*differences(running, files), *new)
        ]
    for flag, problem in check_flags(flags, _read_s(window)):
        message = f"{problem.field}={flag.value}: {problem.message}"
        found.append(KubeletProblem(problem.level, message, flag.read_from))
    unread = tuple(f"{file.path}: {file.unread}" for file in files if file.unread)
    return tuple(found), unread


def _read_s(window: Window | None) -> float | None:
    """What one read of the root's `memory.stat` takes here, measured or estimated."""
    rows = None if window is None else window.latest(WalkCost)
    costs = [
        row.estimate_s if row.root_s is None else row.root_s
        for row in rows or ()
        if row.file == "memory.stat"
    ]
    return max(costs, default=None)


def _judged(enabled: Sequence[EnabledUnit], seen: Evidence) -> list[str]:
    """Services and timers; a service that only its timer starts is judged as the timer."""
    names = {
        unit.name for unit in enabled if unit.at_boot and unit.name.endswith((".service", ".timer"))
    }
    by_timer = {
        unit.name
        for unit in enabled
        if {way.kind for way in unit.how} <= {"timer", "bus"} and unit.at_boot
    }
    names |= {name for name in _running(seen) if name.endswith((".service", ".timer"))}
    timed = {timer.unit for timer in seen.timers.values()}
    return sorted(names - by_timer - {name for name in timed if name not in _running(seen)})


def _running(seen: Evidence) -> set[str]:
    if seen.units is None:
        return set()
    awake = {name for name, unit in seen.units.items() if unit.active_state != "inactive"}
    # A unit that crash-loops may be inactive at the moment.
    looping = {name for name, counted in seen.restarts.items() if counted.recent}
    return awake | looping | set(seen.timers)


def _systemd(window: Window | None) -> str | None:
    rows = None if window is None else window.latest(ServiceManager)
    return rows[0].version if rows and rows[0].name == "systemd" else None
