"""Scopes and sessions stay behind with their directories, but without any process.

**What is seen.** Live directories of scopes (`session-*.scope`, `run-r*.scope`) and containers in
which no process is, though they were there in the first and in the last count of the window;
parents with more than a thousand of them; and logind's message that it ran out of sessions.

**Why it hurts.** Each is walked like any other memory cgroup, so statistics slow down just as they
do with zombies, and at 8,192 sessions logind refuses every further login. It looks like
*zombie_memcgs* and is something else: these have directories, and systemd can stop them.

**What would make it wrong.** A scope that is just being opened or closed is empty for a moment:
only those that stay for the whole window are counted. From a container the processes of the
node cannot be seen, so everything would look empty; emptiness is not judged then.
Many scopes with processes in them are many sessions, not a leak.

**Check by hand.** ``loginctl list-sessions | grep closing``,
``systemctl list-units --type=scope --state=abandoned``, and
``find /sys/fs/cgroup -name '*.scope' | wc -l``.

**What to do.** ``systemctl stop 'session-*.scope'`` for those that are closing (it kills what is
left in them, so look first), ``loginctl terminate-session ID``; update systemd and dbus if they
do not close them; find what opens so many sessions (a monitoring check over ssh, cron).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from sexton.detect import kernel_log
from sexton.detect.findings import missing, names
from sexton.detect.registry import Threshold, Treatment, detector, look
from sexton.detect.stems import container, join, path_stem, pattern, split
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cgroup import CgroupDir
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.task import ProcessCgroup
from sexton.model.text import count
from sexton.model.window import Window
from sexton.series.directories import identity

NAME = "leaked_scopes"
#: Lines of logind in which it refuses a session.
FAMILY = "sessions"

EMPTY = Threshold(
    "empty",
    100,
    "scopes without processes",
    "a closed scope is removed within a second: a node has none",
)
FULL = Threshold(
    "full", 4_096, "scopes without processes", "half of the 8,192 sessions after which logind stops"
)
CROWD = Threshold(
    "crowd", 1_000, "directories under one parent", "a large node has some hundreds in all"
)
INIT = "/init.scope"
_MOST = 5


class _Group(NamedTuple):
    """Directories of like names under one parent."""

    path: str
    names: str
    number: int

    @property
    def shown(self) -> str:
        return join(self.path, self.names)


@detector(
    needs=(CgroupDir,),
    events=(FAMILY,),
    thresholds=(EMPTY, FULL, CROWD),
    title="leaked scopes",
    story="Empty cgroups were never removed",
    lanes=("memcgs",),
    about=("cgroup",),
    answers={"cgroup": 3},
    advice=look(
        "loginctl list-sessions | grep closing",
        "see which sessions do not close; end them with loginctl terminate-session",
    ),
    treatments=(Treatment.REMOVE_EMPTY,),
)
def detect(window: Window) -> Finding:
    """Empty scopes first, crowded parents second."""
    rows = window.latest(CgroupDir) or ()
    scopes = _grouped([row.path for row in rows if _is_scope(row)])
    # Without a scope, processes do not matter, and the source may not have read them.
    blind = _cannot_see(window, {row.path for row in rows}) if scopes else None
    empty = _grouped(_deserted(window)) if blind is None else []
    crowds = [_Group(row.path, "*", row.children) for row in rows if row.children >= CROWD.value]
    crowds.sort(key=lambda group: -group.number)
    refused = [line.event for line in kernel_log.lines(window, (FAMILY,))]
    idle = None if blind else sum(group.number for group in empty)
    evidence = [
        _counted(len(rows), scopes, idle),
        *(_left(group) for group in empty[:_MOST] if group.number >= EMPTY.value),
        *(_crowded(group) for group in crowds[:_MOST]),
        *(_refused(event, len(refused)) for event in refused[-1:]),
    ]
    severity, text = _judge(idle, scopes, crowds, bool(refused))
    lacking = () if blind is None else (blind,)
    if severity is None:
        many = blind is not None and sum(group.number for group in scopes) >= EMPTY.value
        return Finding(
            NAME,
            Verdict.UNKNOWN if many else Verdict.ABSENT,
            Severity.INFO,
            text,
            evidence=tuple(evidence),
            missing=lacking,
        )
    return Finding(
        NAME,
        Verdict.PRESENT,
        severity,
        text,
        entities={"cgroup": names(group.path for group in (*empty[:_MOST], *crowds[:_MOST]))},
        start=window.start,
        end=window.end,
        evidence=tuple(evidence),
        missing=lacking,
    )


def _is_scope(row: CgroupDir) -> bool:
    name = split(row.path)[1]
    return (name.endswith(".scope") or container(row.path) is not None) and row.path != INIT


def _cannot_see(window: Window, paths: set[str]) -> Missing | None:
    """Why it is unknown which directories have processes; `None` if that is known."""
    rows = window.latest(ProcessCgroup)
    if rows is None:
        return missing(window.why_missing(ProcessCgroup))
    occupied = {row.path for row in rows if not row.deleted}
    grant = "sudo sexton diagnose  # on the node; in a pod with hostPID: nsenter -t 1 -a sexton"
    if any(path.startswith("/..") for path in occupied):
        return Missing("the processes' paths belong to another cgroup namespace", grant)
    if window.node is not None and window.node.container:
        return Missing("the node's processes cannot be seen from this container", grant)
    # If systemd created the directory, PID 1 is in it.
    if (INIT in paths and INIT not in occupied) or not occupied & paths:
        return Missing("the processes seen do not belong to these directories", grant)
    return None


def _deserted(window: Window) -> list[str]:
    """Leaf scopes that are in the first and the last count and had no process in any reading."""
    edges = window.edges(CgroupDir)
    if edges is None:
        return []
    key = identity(*edges)
    first = {key(row) for row in edges[0].rows}
    lived = window.distinct(ProcessCgroup, ("path", "deleted"))
    occupied = {path for path, deleted in lived if not deleted}
    return [
        row.path
        for row in edges[1].rows
        if key(row) in first and not row.children and row.path not in occupied and _is_scope(row)
    ]


def _grouped(paths: list[str]) -> list[_Group]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in paths:
        parent, name = split(path)
        found[parent, path_stem(name)].append(name)
    groups = [_Group(parent, pattern(names), len(names)) for (parent, _), names in found.items()]
    return sorted(groups, key=lambda group: (-group.number, group.shown))


def _judge(
    idle: int | None, scopes: list[_Group], crowds: list[_Group], refusing: bool
) -> tuple[Severity | None, str]:
    """`idle` is `None` where emptiness is unknown."""
    every = sum(group.number for group in scopes)
    most = scopes[0] if scopes else None
    if idle is not None and idle >= EMPTY.value:
        text = f"{idle:,} of {count(every, 'scope')} have no processes"
        return (Severity.CRITICAL if idle >= FULL.value or refusing else Severity.WARNING), text
    if refusing and every >= CROWD.value:
        return Severity.CRITICAL, f"{every:,} scopes, and logind refuses further sessions"
    if idle is None and most is not None and most.number >= CROWD.value:
        text = f"{most.number:,} scopes as {most.shown}; whether they are empty is unknown"
        return Severity.WARNING, text
    if crowds:
        group = crowds[0]
        text = f"{group.number:,} live directories under {group.path}, not zombies"
        return Severity.INFO, text
    known = "emptiness unknown" if idle is None else f"{idle:,} without processes"
    return None, f"{count(every, 'scope')}, {known}"


def _counted(directories: int, scopes: list[_Group], idle: int | None) -> Evidence:
    every = sum(group.number for group in scopes)
    value = "unknown" if idle is None else f"{idle:,}"
    return Evidence(
        "scopes without any process",
        f"{value} of {count(every, 'scope')}, {count(directories, 'directory', 'directories')}",
        "0, or a few that are just closing",
        "scopes",
        "directories of the memory hierarchy, /proc/PID/cgroup",
        None if idle is None else float(idle),
        "processes came and went between the readings",
    )


def _left(group: _Group) -> Evidence:
    return Evidence(
        f"empty scopes {group.shown}",
        f"{group.number:,}",
        "0",
        "scopes",
        "directories of the memory hierarchy, /proc/PID/cgroup",
        float(group.number),
        "they are kept on purpose",
    )


def _crowded(group: _Group) -> Evidence:
    return Evidence(
        f"live directories under {group.path}",
        f"{group.number:,}",
        f"< {CROWD.value:,.0f}",
        "directories",
        "directories of the memory hierarchy",
        float(group.number),
        "this node really runs that many",
    )


def _refused(event: KernelEvent, times: int) -> Evidence:
    return Evidence(
        "logind ran out of sessions",
        count(times, "line"),
        "0",
        "lines in the log",
        event.message,
        float(times),
        "the lines are old and the sessions were closed since",
    )
