"""What was seen of a live node: the evidence an audit weighs, unit by unit.

Each kind of evidence is either there or its absence is said: `None` means that nobody could look,
and an empty answer that somebody looked and found nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sexton.detect.stems import unit_of
from sexton.errors import SourceError
from sexton.host.host import Host
from sexton.model.audit import CgroupUsage, Workload
from sexton.model.cgroup import CgroupEvent
from sexton.model.node import Node
from sexton.model.task import Process, ProcessCgroup
from sexton.model.unit import ServiceManager, Timer, Unit
from sexton.model.window import Window
from sexton.prevent.audit.workloads import counted, kind_of
from sexton.series.restarts import RestartCount, restarts
from sexton.sources.last_words import last_words
from sexton.sources.relations import Relations, relations
from sexton.sources.sock_diag import ESTABLISHED, LISTEN, Sockets, read_sockets

_LOOPBACK = ("127.", "::1")


class Talk(NamedTuple):
    """A unit's sockets: what it listens on, who is connected to that, and whom it is connected to.

    `clients` and `servers` are units, workloads or addresses; `datagrams` are UDP ports, of which
    nobody can say who sends to them.
    """

    listens: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    datagrams: tuple[str, ...] = ()


class Spent(NamedTuple):
    """What a unit used while it was watched; `None` where its cgroup does not tell."""

    cpu_us: int | None
    io_bytes: int | None


@dataclass(slots=True)
class Seen:
    """All evidence of one look; of an image everything is `None`."""

    live: bool = False
    manager: str | None = None
    units: Mapping[str, Unit] | None = None
    timers: Mapping[str, Timer] = field(default_factory=dict)
    leaning: Mapping[str, Relations] | None = None
    talks: Mapping[str, Talk] | None = None
    spent: Mapping[str, Spent] | None = None
    spoke: Mapping[str, float] | None = None
    restarts: Mapping[str, RestartCount] = field(default_factory=dict)
    deaths: Mapping[str, int] | None = None
    workloads: tuple[Workload, ...] | None = None
    vendor: str | None = None
    #: Seen from inside a container: what is there is there, what is not there may be outside.
    partial: bool = False
    seconds: float = 0.0
    until_unix: float = 0.0
    unseen: list[str] = field(default_factory=list)

    def active(self, unit: str) -> bool:
        """Is it running, by the service manager?"""
        known = (self.units or {}).get(unit)
        return known is not None and known.active_state not in ("inactive", "failed")


def look(host: Host, window: Window) -> Seen:
    """Put together what a window holds, and ask for what no window has."""
    node = (window.latest(Node) or (None,))[0]
    managers = window.latest(ServiceManager)
    units = window.latest(Unit)
    seen = Seen(
        live=True,
        manager=managers[0].name if managers else None,
        units=None if not managers else {unit.name: unit for unit in units or ()},
        timers={timer.name: timer for timer in window.latest(Timer) or ()},
        restarts=restarts(window),
        spent=_spent(window),
        vendor=node.vendor if node else None,
        partial=bool(node and node.container),
        seconds=window.seconds,
        until_unix=window.end,
    )
    if seen.units is None:
        seen.unseen.append(f"the service manager: {window.why_missing(Unit).detail or 'not asked'}")
    elif seen.manager != "systemd":
        seen.unseen.append(f"units: process 1 here is {seen.manager}, not systemd")
    _add_workloads(seen, window, node)
    _add_deaths(seen, window)
    _ask(seen, host, window)
    return seen


def _ask(seen: Seen, host: Host, window: Window) -> None:
    """Evidence that is a question and no reading: dependants, sockets, the journal."""
    if seen.units:
        loaded = [name for name, unit in seen.units.items() if unit.load_state == "loaded"]
        try:
            seen.leaning = relations(host, [*loaded, *seen.timers])
        except SourceError as error:
            seen.unseen.append(f"who depends on whom: {error.detail}")
    places = window.latest(ProcessCgroup)
    try:
        if places is None:
            raise SourceError("sock_diag", "processes could not be listed")
        cgroups = {row.pid: row.path for row in places}
        sockets = read_sockets(host, cgroups)
        seen.talks = talks_of(sockets, cgroups)
        if not sockets.inodes_seen:
            seen.unseen.append("whose some sockets are: other users' descriptors need root")
            seen.talks = None
    except SourceError as error:
        seen.unseen.append(f"sockets: {error.detail}")
    try:
        seen.spoke = last_words(host)
    except SourceError as error:
        seen.unseen.append(f"the journal: {error.detail}")


def _add_workloads(seen: Seen, window: Window, node: Node | None) -> None:
    places = window.latest(ProcessCgroup)
    if node is not None and node.container:
        seen.unseen.append(f"workloads: this is a container ({node.container}), not the node")
    elif places is None:
        seen.unseen.append("workloads: the cgroups of processes could not be read")
    else:
        seen.workloads = counted(row.path for row in places)


def _add_deaths(seen: Seen, window: Window) -> None:
    events = window.all(CgroupEvent)
    if events is None:
        seen.unseen.append(f"cgroup deaths: {window.why_missing(CgroupEvent).detail or 'not read'}")
        return
    died = (unit_of(event.path) for event in events if event.kind == "rmdir")
    seen.deaths = Counter(unit for unit in died if unit)


def _spent(window: Window) -> dict[str, Spent] | None:
    """What each unit used between the first and the last reading.

    By its cgroup; where that has no CPU accounting (v1, unless somebody switched it on), by its
    processes, of which those that came or went in between are missing.
    """
    found: dict[str, Spent] = {}
    batches = window.batches(CgroupUsage) or ()
    before = {row.path: row for row in batches[0].rows} if batches else {}
    for row in batches[-1].rows if len(batches) > 1 else ():
        earlier = before.get(row.path)
        unit = unit_of(row.path)
        if earlier is not None and unit is not None:
            found[unit] = Spent(
                _step(earlier.cpu_us, row.cpu_us), _step(earlier.io_bytes, row.io_bytes)
            )
    for unit, cpu_us in _by_process(window).items():
        known = found.get(unit, Spent(None, None))
        if known.cpu_us is None:
            found[unit] = Spent(cpu_us, known.io_bytes)
    return found or None


def _by_process(window: Window) -> Counter[str]:
    batches = window.batches(Process) or ()
    units = {row.pid: unit_of(row.path) for row in window.latest(ProcessCgroup) or ()}
    spent: Counter[str] = Counter()
    if len(batches) < 2:
        return spent
    before = {(row.pid, row.start_ms): row.user_ms + row.system_ms for row in batches[0].rows}
    for row in batches[-1].rows:
        earlier, unit = before.get((row.pid, row.start_ms)), units.get(row.pid)
        if earlier is not None and unit is not None:
            spent[unit] += 1000 * max(row.user_ms + row.system_ms - earlier, 0)
    return spent


def _step(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None or after < before else after - before


def talks_of(sockets: Sockets, cgroups: Mapping[int, str]) -> dict[str, Talk]:
    """Who talks to whom, unit by unit.

    A connection is somebody's *client* where its local port is one the unit listens on. Both ends
    of a connection over loopback, and of a UNIX socket, are on this node, and so is each's owner.
    """
    who = {inode: owner for inode, pid in sockets.owners.items() if (owner := _owner(cgroups, pid))}
    listens: dict[str, dict[str, None]] = defaultdict(dict)
    datagrams: dict[str, dict[str, None]] = defaultdict(dict)
    clients: dict[str, dict[str, None]] = defaultdict(dict)
    servers: dict[str, dict[str, None]] = defaultdict(dict)
    ports: dict[int, str] = {}
    for each in sockets.inet:
        owner = who.get(each.inode)
        if owner and each.protocol == "tcp" and each.state == LISTEN:
            listens[owner][f"tcp {each.port}"] = None
            ports[each.port] = owner
        elif owner and each.protocol == "udp":
            datagrams[owner][f"udp {each.port}"] = None
    ends = {
        (each.local, each.port, each.remote, each.remote_port): who.get(each.inode)
        for each in sockets.inet
        if each.protocol == "tcp"
    }
    for each in sockets.inet:
        if each.protocol != "tcp" or each.state != ESTABLISHED:
            continue
        owner = who.get(each.inode)
        other = ends.get((each.remote, each.remote_port, each.local, each.port))
        peer = other or ("" if each.remote.startswith(_LOOPBACK) else each.remote)
        if owner is None or not peer or peer == owner:
            continue
        (clients if ports.get(each.port) == owner else servers)[owner][peer] = None
    _add_unix(sockets, who, (listens, clients, servers))
    names = {*listens, *datagrams, *clients, *servers}
    return {
        name: Talk(
            tuple(listens[name]), tuple(clients[name]), tuple(servers[name]), tuple(datagrams[name])
        )
        for name in names
    }


def _add_unix(
    sockets: Sockets,
    who: Mapping[int, str],
    into: tuple[dict[str, dict[str, None]], dict[str, dict[str, None]], dict[str, dict[str, None]]],
) -> None:
    """A connected UNIX socket with a name is the server's end: it has its listener's."""
    listens, clients, servers = into
    for each in sockets.unix:
        owner = who.get(each.inode)
        if owner is None:
            continue
        if each.state == LISTEN:
            listens[owner][each.name or "a UNIX socket"] = None
        elif each.peer is not None:
            peer = who.get(each.peer)
            if peer is not None and peer != owner:
                (clients if each.name else servers)[owner][peer] = None


def _owner(cgroups: Mapping[int, str], pid: int) -> str | None:
    """The unit of a process, or what kind of workload it belongs to, or a login."""
    path = cgroups.get(pid)
    if path is None:
        return None
    workload = kind_of(path)
    return f"a {workload[0]} workload" if workload else unit_of(path)
