"""Evidence from a live node, unit by unit.

`None` means that a kind of evidence could not be read; an empty value that it was read and there is
nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sexton.detect.kubernetes.pods import pod_path
from sexton.detect.stems import unit_of
from sexton.errors import SourceError
from sexton.host.host import Host
from sexton.model.audit import CgroupUsage, Workload
from sexton.model.rows.cgroup import CgroupEvent
from sexton.model.rows.node import Node
from sexton.model.rows.task import Process, ProcessCgroup
from sexton.model.rows.unit import ServiceManager, Timer, Unit
from sexton.model.window import Window
from sexton.series.restarts import Restarts, restarts
from sexton.series.steps import span
from sexton.series.tasks import task_steps
from sexton.sources.services import last_logged, relations
from sexton.sources.sock_diag import ESTABLISHED, LISTEN, Sockets, read_sockets

#: Kind of workload, and which part of a cgroup path is one; the first match wins, after pods.
#: Container runtimes and schedulers use these names (`sexton.detect.stems`).
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("ecs", r".*?/ecs(?:tasks[^/]*)?/[^/]+"),
        ("slurm", r".*?/slurm[^/]*(?:/uid_\d+)?(?:/job_\d+|\.scope/job_\d+)"),
        ("nomad", r".*?/nomad(?:\.slice)?/[^/]*[0-9a-f]{8}-[^/]*"),
        ("docker", r".*?/(?:docker-[0-9a-f]{12,}\.scope|docker/[0-9a-f]{12,})"),
        ("podman", r".*?/libpod-[0-9a-f]{12,}[^/]*"),
        ("containerd", r".*?/(?:nerdctl|cri-containerd)-[0-9a-f]{12,}[^/]*"),
        ("cri-o", r".*?/crio-[0-9a-f]{12,}[^/]*"),
        ("lxc", r".*?/lxc\.payload\.[^/]+|/lxc/[^/]+"),
        ("vm", r".*?/machine\.slice/machine-[^/]+\.scope"),
    )
)
_LOOPBACK = ("127.", "::1")


class Connections(NamedTuple):
    """A unit's sockets: what it listens on, its clients, and the servers it is connected to.

    `clients` and `servers` are units, workloads or addresses; `datagrams` are UDP ports, whose
    senders are unknown.
    """

    listens: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    datagrams: tuple[str, ...] = ()


class Usage(NamedTuple):
    """What a unit used while watched; `None` without the cgroup controller."""

    cpu_us: int | None
    io_bytes: int | None


@dataclass(slots=True)
class Evidence:
    """All evidence of one audit; of an image everything is `None`."""

    live: bool = False
    manager: str | None = None
    units: Mapping[str, Unit] | None = None
    timers: Mapping[str, Timer] = field(default_factory=dict)
    dependants: Mapping[str, tuple[str, ...]] | None = None
    connections: Mapping[str, Connections] | None = None
    usage: Mapping[str, Usage] | None = None
    last_logged: Mapping[str, float] | None = None
    restarts: Mapping[str, Restarts] = field(default_factory=dict)
    deaths: Mapping[str, int] | None = None
    workloads: tuple[Workload, ...] | None = None
    vendor: str | None = None
    #: Read from inside a container: what is missing may exist outside.
    partial: bool = False
    seconds: float = 0.0
    until_unix: float = 0.0
    unseen: list[str] = field(default_factory=list)

    def active(self, unit: str) -> bool:
        """Whether it is running, according to systemd."""
        known = (self.units or {}).get(unit)
        return known is not None and known.active_state not in ("inactive", "failed")


def gather(host: Host, window: Window) -> Evidence:
    """Collect evidence from the window, and query what a window does not hold."""
    node = (window.latest(Node) or (None,))[0]
    managers = window.latest(ServiceManager)
    units = window.latest(Unit)
    seen = Evidence(
        live=True,
        manager=managers[0].name if managers else None,
        units=None if not managers else {unit.name: unit for unit in units or ()},
        timers={timer.name: timer for timer in window.latest(Timer) or ()},
        restarts=restarts(window),
        usage=_usage(window),
        vendor=node.vendor if node else None,
        partial=bool(node and node.container),
        seconds=window.seconds,
        until_unix=window.end,
    )
    if seen.units is None:
        seen.unseen.append(f"the service manager: {window.why_missing(Unit).detail or 'not read'}")
    elif seen.manager != "systemd":
        seen.unseen.append(f"units: PID 1 is {seen.manager}, not systemd")
    _add_workloads(seen, window, node)
    _add_deaths(seen, window)
    _query(seen, host, window)
    return seen


def _query(seen: Evidence, host: Host, window: Window) -> None:
    """Add dependants, sockets and the journal, which are queried once and not sampled."""
    if seen.units:
        loaded = [name for name, unit in seen.units.items() if unit.load_state == "loaded"]
        try:
            seen.dependants = relations(host, [*loaded, *seen.timers])
        except SourceError as error:
            seen.unseen.append(f"dependencies between units: {error.detail}")
    places = window.latest(ProcessCgroup)
    try:
        if places is None:
            raise SourceError("sock_diag", "processes could not be listed")
        cgroups = {row.pid: row.path for row in places}
        sockets = read_sockets(host, cgroups)
        seen.connections = connections_of(sockets, cgroups)
        if not sockets.inodes_seen:
            seen.unseen.append(
                "owners of sockets: reading other users' file descriptors needs root"
            )
            seen.connections = None
    except SourceError as error:
        seen.unseen.append(f"sockets: {error.detail}")
    try:
        seen.last_logged = last_logged(host)
    except SourceError as error:
        seen.unseen.append(f"the journal: {error.detail}")


def _add_workloads(seen: Evidence, window: Window, node: Node | None) -> None:
    places = window.latest(ProcessCgroup)
    if node is not None and node.container:
        seen.unseen.append(f"workloads: running in a container ({node.container}), not on the node")
    elif places is None:
        seen.unseen.append("workloads: the cgroups of processes could not be read")
    else:
        seen.workloads = count_workloads(row.path for row in places)


def _add_deaths(seen: Evidence, window: Window) -> None:
    events = window.all(CgroupEvent)
    if events is None:
        seen.unseen.append(
            f"cgroup removals: {window.why_missing(CgroupEvent).detail or 'not read'}"
        )
        return
    died = (unit_of(event.path) for event in events if event.kind == "rmdir")
    seen.deaths = Counter(unit for unit in died if unit)


def _usage(window: Window) -> dict[str, Usage] | None:
    """What each unit used between the first and the last reading.

    From its cgroup; without CPU accounting (the default on v1) from its processes, which misses
    those that exited in between.
    """
    found: dict[str, Usage] = {}
    for step in span(window.edges(CgroupUsage) or (), lambda row: row.path).values():
        unit = unit_of(step.after.path)
        if unit is not None:
            found[unit] = Usage(step.delta("cpu_us"), step.delta("io_bytes"))
    for unit, cpu_us in _cpu_of_processes(window).items():
        known = found.get(unit, Usage(None, None))
        if known.cpu_us is None:
            found[unit] = Usage(cpu_us, known.io_bytes)
    return found or None


def _cpu_of_processes(window: Window) -> Counter[str]:
    units = {row.pid: unit_of(row.path) for row in window.latest(ProcessCgroup) or ()}
    spent: Counter[str] = Counter()
    for step in task_steps(window.edges(Process) or (), over_gaps=True):
        unit = units.get(step.row.pid)
        if unit is not None:
            spent[unit] += 1000 * round(step.amount)
    return spent


def connections_of(sockets: Sockets, cgroups: Mapping[int, str]) -> dict[str, Connections]:
    """Connections between units, by unit.

    The peer is a *client* if the connection's local port is one the unit listens on. Both ends of a
    loopback connection or a UNIX socket are on this node, so both owners are known.
    """
    who = {inode: owner for inode, pid in sockets.owners.items() if (owner := _owner(cgroups, pid))}
    found: dict[str, _Peers] = defaultdict(_Peers)
    ports: dict[int, str] = {}
    for socket in sockets.inet:
        owner = who.get(socket.inode)
        if owner and socket.protocol == "tcp" and socket.state == LISTEN:
            found[owner].listens[f"tcp {socket.port}"] = None
            ports[socket.port] = owner
        elif owner and socket.protocol == "udp":
            found[owner].datagrams[f"udp {socket.port}"] = None
    ends = {
        (socket.local, socket.port, socket.remote, socket.remote_port): who.get(socket.inode)
        for socket in sockets.inet
        if socket.protocol == "tcp"
    }
    for socket in sockets.inet:
        if socket.protocol != "tcp" or socket.state != ESTABLISHED:
            continue
        owner = who.get(socket.inode)
        other = ends.get((socket.remote, socket.remote_port, socket.local, socket.port))
        peer = other or ("" if socket.remote.startswith(_LOOPBACK) else socket.remote)
        if owner is not None and peer and peer != owner:
            found[owner].add(peer, is_client=ports.get(socket.port) == owner)
    for unix in sockets.unix:
        owner = who.get(unix.inode)
        if owner is None:
            continue
        if unix.state == LISTEN:
            found[owner].listens[unix.name or "a UNIX socket"] = None
        elif unix.peer is not None and (known := who.get(unix.peer)) not in (None, owner):
            # Connected and with a name, it is the server's end: it has the listener's name.
            found[owner].add(str(known), is_client=bool(unix.name))
    return {name: peers.connections for name, peers in found.items()}


@dataclass(slots=True)
class _Peers:
    """`Connections` while they are collected; dicts keep the order and each name once."""

    listens: dict[str, None] = field(default_factory=dict)
    clients: dict[str, None] = field(default_factory=dict)
    servers: dict[str, None] = field(default_factory=dict)
    datagrams: dict[str, None] = field(default_factory=dict)

    def add(self, peer: str, *, is_client: bool) -> None:
        (self.clients if is_client else self.servers)[peer] = None

    @property
    def connections(self) -> Connections:
        kinds = (self.listens, self.clients, self.servers, self.datagrams)
        return Connections(*map(tuple, kinds))


def _owner(cgroups: Mapping[int, str], pid: int) -> str | None:
    """The unit of a process, or the kind of workload it belongs to."""
    path = cgroups.get(pid)
    if path is None:
        return None
    workload = workload_of(path)
    return f"a {workload[0]} workload" if workload else unit_of(path)


def workload_of(path: str) -> tuple[str, str] | None:
    """The workload a cgroup path belongs to: its kind, and its part of the path."""
    if (pod := pod_path(path)) is not None:
        return "kubernetes", pod
    for kind, pattern in _KINDS:
        found = pattern.match(path)
        if found is not None:
            return kind, found[0]
    return None


def count_workloads(paths: Iterable[str]) -> tuple[Workload, ...]:
    """Containers and jobs by kind, from the cgroup paths of processes.

    Each is counted once, however many processes it has; empty cgroups do not count.

    >>> pod = "/kubepods.slice/kubepods-burstable-pod" + "0a" * 16 + ".slice"
    >>> paths = [pod + "/cri-containerd-" + "1" * 64 + ".scope", "/ecs/abc/" + "f" * 64]
    >>> found = count_workloads(paths)
    >>> [(each.kind, each.count) for each in found], found[0].example
    ([('ecs', 1), ('kubernetes', 1)], '/ecs/abc')
    """
    found: dict[str, set[str]] = {}
    for path in paths:
        known = workload_of(path)
        if known is not None:
            found.setdefault(known[0], set()).add(known[1])
    return tuple(Workload(kind, len(places), min(places)) for kind, places in sorted(found.items()))
