"""Find what the user named among the entities of the node.

A user types ``core 5``, ``eth0``, ``ecs`` or ``kubelet``; findings contain ``5``, ``eth0``,
``ecs.service`` and ``kubelet[2113/2140]``. Names are compared as printed, escaped, so that text
from a report can be pasted back. A word before the name gives its kind (``task kubelet``, ``unit
kubelet``); without one every kind is tried, in the order of `KINDS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from sexton.detect.block_devices import is_part
from sexton.detect.custom_patterns import finding_id
from sexton.detect.kubernetes.pods import PodPart
from sexton.detect.registry import detector_ids
from sexton.errors import CommandError
from sexton.model.finding import Finding
from sexton.model.row import Row
from sexton.model.rows.cgroup import (
    CgroupCpu,
    CgroupDir,
    CgroupEvent,
    CgroupMemory,
    CgroupResidual,
    CgroupStat,
    CgroupThrottle,
    OfflineMemcg,
)
from sexton.model.rows.cpu import CoreTimes, IrqAffinity
from sexton.model.rows.event import FLAGGED, KernelEvent, ServiceEvent
from sexton.model.rows.filesystem import Filesystem
from sexton.model.rows.kubernetes import Container, Pod
from sexton.model.rows.net import NetDevice, Nic, NicQueue
from sexton.model.rows.recorder import Mark
from sexton.model.rows.task import Process, ProcessCgroup, Thread
from sexton.model.rows.trace import StackCount
from sexton.model.rows.unit import RestartMark, Timer, Unit
from sexton.model.text import printable, shorten
from sexton.model.why import Subject
from sexton.model.window import Window

#: In the order in which a bare name is tried.
KINDS = (
    "nic", "queue", "unit", "task", "pod", "cgroup", "mount", "device", "job", "core", "irq",
    "symptom", "function",
)  # fmt: skip
#: Words before a name, and the kind they mean.
WORDS = {
    "core": "core", "cpu": "core", "nic": "nic", "interface": "nic", "device": "nic",
    "queue": "queue", "irq": "irq", "interrupt": "irq", "unit": "unit", "service": "unit",
    "task": "task", "process": "task", "thread": "task", "pid": "task", "cgroup": "cgroup",
    "job": "job", "mark": "job", "symptom": "symptom", "finding": "symptom",
    "function": "function", "symbol": "function", "mount": "mount", "filesystem": "mount",
    "disk": "device", "pod": "pod",
}  # fmt: skip
#: Kinds whose names are bare numbers: these need a word before them.
_NUMBERED = ("core", "irq")
_GLUED = re.compile(r"(core|cpu|irq)[ #]*([0-9]{1,7})", re.ASCII | re.IGNORECASE)
_MOUNTED = re.compile(r"/sys/fs/cgroup(/memory|/unified)?(?=/|$)")
_TASK = re.compile(r"(?P<comm>.*)\[(?P<pid>[0-9]+)(?:/(?P<tid>[0-9]+))?\]", re.ASCII | re.DOTALL)
#: A container's id, also shortened, or a pod's.
_ID = re.compile(r"[0-9a-f]{12,64}|[0-9a-f]{8}([-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}")
_SUFFIXES = (".service", ".timer", ".scope", ".slice", ".socket", ".mount", ".path", ".target")
_MOST_NEAR = 5
_MOST_LETTERS = 60
#: Paths of containers are long, and are listed if they contain the text.
_MOST_IN_PATH = 250

Names = Mapping[str, tuple[str, ...]]


def names_of(window: Window, findings: Iterable[Finding] = ()) -> Names:
    """Every name in the window, by kind, as printed; those in findings first."""
    return with_findings(_names(_named(window)), findings)


def with_findings(names: Names, findings: Iterable[Finding]) -> Names:
    """These names, with those in findings first."""
    found: dict[str, dict[str, None]] = {kind: {} for kind in KINDS}
    for finding in findings:
        found["symptom"][finding.id] = None
        for kind, entities in finding.entities.items():
            found.setdefault(kind, {}).update(dict.fromkeys(entities))
    for kind, known in names.items():
        found.setdefault(kind, {}).update(dict.fromkeys(known))
    return {kind: tuple(known) for kind, known in found.items()}


def names_for(query: str, window: Window) -> Names:
    """The names of a window, if the words may name something in it.

    Else `CommandError`, with similar names. This needs no diagnosis: a typo is reported before the
    node or the recording is examined. Tables with few additional names are read only if the others
    lack the name.
    """
    word = query.strip().partition(" ")[0].lower()
    numbered = WORDS.get(word) in _NUMBERED or _GLUED.fullmatch(query.strip()) is not None
    names = _names(_named(window, numbered=numbered))
    if candidates(query, names):
        return names
    rest = _names(_named_elsewhere(window))
    names = {kind: tuple(dict.fromkeys((*names[kind], *rest[kind]))) for kind in names}
    # A unit that was not read from systemd still has a cgroup.
    parts = (part for path in names["cgroup"] for part in path.split("/"))
    units = dict.fromkeys(part for part in parts if part.endswith(_SUFFIXES))
    names = {**names, "unit": tuple(dict.fromkeys((*names["unit"], *units)))}
    if candidates(query, names) or _is_logged(query, window):
        return names
    raise no_such_name(query, names)


def _names(named: Iterable[tuple[str, str]]) -> Names:
    found: dict[str, dict[str, None]] = {kind: {} for kind in KINDS}
    for kind, name in named:
        found[kind][printable(name)] = None
    return {kind: tuple(names) for kind, names in found.items()}


_Column = tuple[str, type[Row], str]
#: Columns with numbers, columns with names, and columns with a few more: of what existed only
#: between two readings.
_NUMBERS: tuple[_Column, ...] = (("core", CoreTimes, "cpu"), ("irq", NicQueue, "irq"))
_COLUMNS: tuple[_Column, ...] = (
    ("nic", Nic, "name"), ("nic", NetDevice, "name"),
    ("unit", Unit, "name"), ("unit", Timer, "name"),
    ("unit", RestartMark, "unit"), ("cgroup", CgroupDir, "path"),
    ("cgroup", CgroupThrottle, "path"), ("cgroup", CgroupEvent, "path"),
    ("mount", Filesystem, "mount_point"), ("device", Filesystem, "device"),
)  # fmt: skip
_MORE_COLUMNS: tuple[_Column, ...] = (
    ("unit", Timer, "unit"), ("cgroup", Unit, "cgroup"), ("irq", IrqAffinity, "irq"),
    ("cgroup", OfflineMemcg, "path"), ("cgroup", CgroupResidual, "path"),
    ("cgroup", CgroupMemory, "path"), ("cgroup", CgroupStat, "path"),
    ("cgroup", CgroupCpu, "path"), ("cgroup", ProcessCgroup, "path"),
)  # fmt: skip


#: Pods, each by namespace and name.
_PODS: tuple[tuple[type[Row], tuple[str, str]], ...] = (
    (Pod, ("namespace", "name")), (Container, ("namespace", "pod")),
)  # fmt: skip


#: Tables that hold most names and are cheap to read.
QUICK_TABLES: frozenset[type[Row]] = frozenset(
    {CoreTimes, Nic, NetDevice, NicQueue, Process, Thread}
)
#: Every table with names of what is on a node, and log lines that contain some.
NAME_TABLES: frozenset[type[Row]] = QUICK_TABLES | {
    *(table for _, table, _ in (*_NUMBERS, *_COLUMNS, *_MORE_COLUMNS)),
    *(table for table, _ in _PODS),
    KernelEvent,
    ServiceEvent,
}
#: Words before what comes and goes: it may appear while the node is observed.
_PASSING = ("task", "process", "thread", "cgroup")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]{2,127}", re.ASCII)


def may_appear(query: str, stacks: bool) -> bool:
    """Can this name something that is not on the node yet? Functions are known only from stacks.

    >>> [may_appear(words, False) for words in ("task backup", "backup", "core 9", "task")]
    [True, False, False, False]
    >>> may_appear("mem_cgroup_iter", True), may_appear("function x", True), may_appear("a b", True)
    (True, True, False)
    """
    text = query.strip()
    word, _, rest = text.partition(" ")
    if rest.strip() and word.lower() in WORDS:
        kind = word.lower()
        return kind in _PASSING or (stacks and WORDS[kind] == "function")
    return stacks and _FUNCTION.fullmatch(text) is not None


def _named(window: Window, *, numbered: bool = True) -> Iterator[tuple[str, str]]:
    """A bare word means no core: their numbers are read only if they may be meant."""
    yield from (("symptom", name) for name in detector_ids())
    for family, pattern in window.distinct(KernelEvent, ("family", "pattern")):
        if family == FLAGGED:
            yield "symptom", finding_id(pattern)
    yield from _in_columns(window, _NUMBERS if numbered else ())
    yield from _in_columns(window, _COLUMNS)
    yield from (("job", mark.text) for mark in window.all(Mark) or ())
    for nic, queue in window.distinct(NicQueue, ("nic", "queue")):
        if queue is not None:
            yield "queue", f"{nic}:{queue}"
    for table, fields in _PODS:
        yield from (("pod", f"{names[0]}/{names[1]}") for names in window.distinct(table, fields))
    called = {row.frames: None for row in window.latest(StackCount) or ()}
    yield from (("function", name) for name in {name for pair in called for name in pair})
    for comm, pid in window.distinct(Process, ("comm", "pid")):
        yield "task", f"{comm}[{pid}]"
    yield from _threads(window, Thread)


def _named_elsewhere(window: Window) -> Iterator[tuple[str, str]]:
    yield from _threads(window, StackCount)
    yield from _in_columns(window, (*_NUMBERS, *_MORE_COLUMNS))


def _in_columns(window: Window, columns: Iterable[_Column]) -> Iterator[tuple[str, str]]:
    for kind, table, field in columns:
        found = (value for (value,) in window.distinct(table, (field,)))
        yield from ((kind, str(value)) for value in found if value is not None and value != "")


def _threads(window: Window, table: type[Row]) -> Iterator[tuple[str, str]]:
    """Includes main threads: if a process ended between two readings of all processes, they are
    only here."""
    for comm, pid, tid in window.distinct(table, ("comm", "pid", "tid")):
        yield "task", f"{comm}[{pid}]" if pid == tid else f"{comm}[{pid}/{tid}]"


def _is_logged(query: str, window: Window) -> bool:
    """Does a log line contain it? Then a finding may be about it; only a diagnosis can show."""
    word, _, rest = printable(query.strip()).partition(" ")
    text = rest.strip() if rest.strip() and word.lower() in WORDS else printable(query.strip())
    task = _TASK.fullmatch(text)
    wanted = _normal("cgroup", task["comm"] if task else text)
    if not wanted or _GLUED.fullmatch(text):
        return False
    lines = [row.message for row in window.all(KernelEvent) or ()]
    lines += [row.message for row in window.all(ServiceEvent) or ()]
    return any(wanted in line or wanted in printable(line) for line in lines)


def candidates(query: str, names: Names) -> tuple[Subject, ...]:
    """Everything the words may mean, the likeliest first; empty if nothing has that name.

    >>> names = {"core": ("0", "5"), "unit": ("ecs.service",), "task": ("ecs[7]",)}
    >>> [(each.kind, each.name) for each in candidates("ecs", names)]
    [('unit', 'ecs.service'), ('task', 'ecs')]
    >>> candidates("cpu5", names)
    (Subject(kind='core', name='5', wall_s=None, lasts_s=0.0),)
    >>> candidates("core 500", names), candidates("5", names)
    ((), ())
    """
    text = printable(query.strip())
    if glued := _GLUED.fullmatch(text):
        kind = WORDS[glued[1].lower()]
        return tuple(_of_kind(kind, str(int(glued[2])), names))
    word, _, rest = text.partition(" ")
    found: list[Subject] = []
    if rest.strip() and word.lower() in WORDS:
        found += _of_kind(WORDS[word.lower()], rest.strip(), names, by_pid=word.lower() == "pid")
    for kind in KINDS:
        if kind not in _NUMBERED:
            found += _of_kind(kind, text, names)
    return tuple(dict.fromkeys(found))


def _of_kind(kind: str, text: str, names: Names, *, by_pid: bool = False) -> Iterator[Subject]:
    """At most one: the entity of this kind that the words name."""
    if not text:
        return
    known = names.get(kind, ())
    wanted = _normal(kind, text)
    if kind == "unit":
        exact = next((name for name in known if name == wanted), None)
        stems = (name for name in known if name in {wanted + end for end in _SUFFIXES})
        named = exact or next(stems, None)
    elif kind == "task":
        wanted = f"[{wanted}]" if by_pid else wanted
        begins = wanted.partition("[")[0]  # so does every name of it
        alike = (name for name in known if name.startswith(begins))
        named = wanted if any(_is_task(wanted, name) for name in alike) else None
    elif kind == "cgroup":
        below = any(name == wanted or name.startswith(wanted.rstrip("/") + "/") for name in known)
        named = wanted if wanted.startswith("/") and below else _by_part(text, known)
    elif kind == "pod":
        named = wanted if wanted in known else _by_name(wanted, known)
    elif kind == "device":
        named = wanted if any(is_part(name, wanted) for name in known) else None
    elif kind == "job":
        named = next((name for name in known if wanted.lower() in name.lower()), None)
    else:
        named = wanted if wanted in known else None
    if named is not None:
        yield Subject(kind, named)


def _by_name(text: str, pods: Iterable[str]) -> str | None:
    """The only pod with this name in any namespace.

    >>> _by_name("api", ("prod/api", "prod/db")), _by_name("api", ("prod/api", "test/api"))
    ('prod/api', None)
    """
    found = [pod for pod in pods if pod.partition("/")[2] == text]
    return found[0] if len(found) == 1 else None


def _by_part(text: str, paths: Iterable[str]) -> str | None:
    """The only cgroup with this name, or with this id of a pod or container in its name; `None` if
    there are several.

    >>> pod = "/kubepods.slice/kubepods-pod0a1b2c3d_1111_2222_3333_444455556666.slice"
    >>> paths = (pod, f"{pod}/cri-containerd-0f3a77bc0e6d4b1e.scope")
    >>> paths += ("/a/web", "/b/web", "/a/job-7")
    >>> [_by_part(text, paths) for text in ("job-7", "web", "7", "job")]
    ['/a/job-7', None, None, None]
    >>> _by_part("0a1b2c3d-1111-2222-3333-444455556666", paths) == pod
    True
    >>> _by_part("0f3a77bc0e6d", paths) == paths[1]
    True
    """
    if "/" in text or text.isdecimal() or text.endswith(_SUFFIXES):
        return None
    is_id = _ID.fullmatch(text.lower().removeprefix("pod")) is not None
    wanted = text.lower().replace("-", "_") if is_id else text
    found: dict[str, None] = {}
    for path in paths:
        plain = path.lower().replace("-", "_") if is_id else path
        if wanted not in plain:
            continue
        place = ""
        for part, compared in zip(path.split("/")[1:], plain.split("/")[1:], strict=True):
            place += f"/{part}"
            if compared == wanted or (is_id and wanted in compared):
                found[place] = None
                break
    return next(iter(found)) if len(found) == 1 else None


def _normal(kind: str, text: str) -> str:
    """The spelling that findings use."""
    if kind == "symptom":
        return text.lower().replace(" ", "_").replace("-", "_")
    if kind == "cgroup":
        plain = _MOUNTED.sub("", text)
        return "/" + plain.strip("/") if text.startswith("/") else text
    if kind == "mount":
        return text.rstrip("/") or "/"
    if kind == "device":
        return text.removeprefix("/dev/")
    return text


def _is_task(wanted: str, name: str) -> bool:
    """Are both the same process or thread, as far as `wanted` says?

    >>> [_is_task(each, "kubelet[2113/2140]") for each in ("kubelet", "kubelet[2113]", "[2113]")]
    [True, True, True]
    >>> _is_task("kube", "kubelet[2113]"), _is_task("kubelet[2113/9]", "kubelet[2113/2140]")
    (False, False)
    """
    task = _TASK.fullmatch(name)
    if task is None or wanted == name:
        return wanted == name
    match = _TASK.fullmatch(wanted)
    if match is None:
        return wanted == task["comm"]
    same_thread = match["tid"] is None or match["tid"] == task["tid"]
    return match["comm"] in ("", task["comm"]) and match["pid"] == task["pid"] and same_thread


def is_named(subject: Subject, kind: str, name: str) -> bool:
    """Is this entity of a finding the queried one, or a part of it?

    A unit includes its cgroup and those below it, an interface its queues. A disk includes its
    partitions, and what happened to the disk concerns each of them.

    >>> is_named(Subject("unit", "a.service"), "cgroup", "/system.slice/a.service/x")
    True
    >>> is_named(Subject("nic", "eth0"), "queue", "eth0:5")
    True
    >>> is_named(Subject("core", "5"), "irq", "5")
    False

    A pod is one of its workload's, which a finding about many of them names.

    >>> is_named(Subject("pod", "prod/api-7c9f4d5b6-x2k4z"), "pod", "prod/api-*")
    True
    """
    if subject.kind == "task":
        return kind == "task" and _is_task(subject.name, name)
    if subject.kind == "pod" and kind == "pod":
        return name in (subject.name, workload_of(subject.name))
    if subject.kind == "unit" and kind == "cgroup":
        return subject.name in name.split("/")
    if subject.kind == "cgroup" and kind == "cgroup":
        return name == subject.name or name.startswith(subject.name.rstrip("/") + "/")
    if subject.kind == "cgroup" and kind == "unit":
        return subject.name.rpartition("/")[2] == name
    if subject.kind == "nic" and kind == "queue":
        return name.rpartition(":")[0] == subject.name
    if subject.kind == "device" and kind == "device":
        return is_part(name, subject.name) or is_part(subject.name, name)
    return kind == subject.kind and name == subject.name


def workload_of(pod: str) -> str:
    """``NAMESPACE/WORKLOAD-*`` of a pod's name."""
    namespace, _, name = pod.partition("/")
    return PodPart(namespace, name).family.name


def concerns(finding: Finding, subject: Subject) -> bool:
    """Is the finding about it?"""
    if subject.kind == "symptom":
        return finding.id == subject.name
    return any(
        is_named(subject, kind, name) for kind, names in finding.entities.items() for name in names
    )


def nearest(query: str, names: Names) -> tuple[str, ...]:
    """Existing names that are similar to what was typed, as they should be typed."""
    text = printable(query.strip()).lower()
    if _GLUED.fullmatch(text):
        return ()  # similar digits do not make similar numbers
    functions = {*names.get("function", ())}
    pool: dict[str, str] = {}
    for kind in KINDS:
        for name in names.get(kind, ()):
            shown = f"{kind} {name}" if kind in _NUMBERED else name
            if kind == "task" and (match := _TASK.fullmatch(name)):
                shown = match["comm"]
            if len(shown) <= (_MOST_IN_PATH if kind == "cgroup" else _MOST_LETTERS):
                pool.setdefault(shown.lower(), shown)
                if kind == "unit" and (stem := shown.lower().rpartition(".")[0]):
                    pool.setdefault(stem, shown)
    containing = [low for low in pool if text and (text in low or (len(low) > 2 and low in text))]
    # A kernel has too many functions to match typos: they are listed only if they contain the text.
    some = [
        low for low, shown in pool.items() if len(shown) <= _MOST_LETTERS and shown not in functions
    ]
    alike = get_close_matches(shorten(text, 2 * _MOST_LETTERS), some, _MOST_NEAR, 0.6)
    chosen = dict.fromkeys([*alike, *sorted(containing, key=len)])
    return tuple(dict.fromkeys(pool[low] for low in chosen))[:_MOST_NEAR]


def no_such_name(query: str, names: Names) -> CommandError:
    """One line: similar names, or else what names there are."""
    near = nearest(query, names)
    what = f"no such name: {shorten(printable(query), 80)!r}"
    if near:
        return CommandError(f"{what}; similar: {', '.join(near)}")
    there = [
        f"{len(names.get(kind, ())):,} {many} ({shorten(names[kind][0], 40)}, …)"
        for kind, many in (("nic", "interfaces"), ("unit", "units"), ("task", "tasks"))
        if names.get(kind)
    ]
    cores = sorted(map(int, names.get("core", ())))
    if cores:
        there.insert(0, f"core {cores[0]} to core {cores[-1]}")
    return CommandError(f"{what}; there are {', '.join(there)}" if there else what)
