"""What the recorder would do on this node, without doing it.

Every file is read as the recorder would read it, under the same guard and limits, twice: the first
reading opens it, the second costs what all later ones will. What would change the node is only
inspected: no trace instance is created, no BPF program loaded, no perf started, no directory
created, no lock held for longer than it takes to see that it is free.

Disk use is an estimate. A sealed segment holds one Parquet file per table: about `FILE_BYTES` with
hardly any rows, and `ROW_BYTES` more for each row. Both were measured on sealed segments of 96
cores with random increments (`python -m lab.synthetic`) and of a small idle node. Events are not
included.

Capabilities: CAP_SYSLOG, CAP_BPF, CAP_PERFMON, CAP_DAC_OVERRIDE, CAP_SYS_PTRACE and tracefs's
CAP_SYS_ADMIN were found by removing the capability and by granting it alone (setpriv(1), Linux
6.18, root and another user). That BPF statistics need CAP_SYS_ADMIN is from the kernel's
documentation. CAP_NET_ADMIN turned out to be useless (anybody can read ethtool's counters), and so
did CAP_DAC_OVERRIDE and CAP_SYS_PTRACE for root (group root sees past ``hidepid``).

>>> round(segment_bytes({"core_times": 11_520}) / 1000)
95
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sexton.errors import SourceError
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.model.counters import delta
from sexton.model.row import table
from sexton.model.rows.cpu import Interrupt, ProbeCost, SoftirqWait
from sexton.model.rows.net import NicQueue
from sexton.model.window import SourceState
from sexton.record import budget
from sexton.record.destination import shown
from sexton.record.perf_child import AS_ROOT, INSTALL
from sexton.record.sampler import Sampler
from sexton.record.schedule import CLOSER, TABLES_S, recorded_sources
from sexton.record.stacks import NICE, Rotation
from sexton.sources.bpf.program import VALUE_BYTES
from sexton.sources.registry import Source
from sexton.sources.tracefs.instance import BUFFER_KB, GRANT, detached, find_tracefs
from sexton.sources.tracefs.ring import EVENTS, buffer_kb
from sexton.store.layout import DIRECTORIES, is_locked, lock_holder
from sexton.store.retention import PINNED_SHARE, Limits
from sexton.store.writer import SEGMENT_S

#: Resident after some minutes beside 1,000 processes and 1,000 cgroups, measured: 48 MB on two
#: cores without probe and ring; the rest is room for those and more cores, not measured. Sealing in
#: a child takes up to 150 MB for a few seconds every ten minutes, half of it mapped libraries.
EXPECTED_RSS = 60 << 20
#: CPU of flushing (9 to 12 µs) and sealing (5 to 6 µs) a row, measured on Linux 6.18 at 280 rows a
#: second. It includes the fixed cost of each table, so big nodes are overestimated.
WRITE_S = 15e-6
_PERF_PAGES = 128 + 1
_CGROUP_EVENTS = ("cgroup:cgroup_mkdir", "cgroup:cgroup_rmdir", "cgroup:cgroup_release")
_PROBED = ("irq:softirq_raise", "irq:softirq_entry")
#: Sources that change the node when opened: listed as kernel events, never opened here.
_NOT_OPENED = ("bpf.", "tracefs.")
_KERNELS_OWN = (("proc",), ("sys",))
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
NOT_READ = (
    "arguments and environments of processes",
    "contents of packets",
    "contents of files other than /proc, /sys, kmsg, os-release, cloud-init, journal",
)
#: The exceptions.
_BUT = "PID 1's, for container="
_BUT_PERF = "and perf's own"
_BUT_NAMES = "except symbols of what ran"


#: Their numbers in linux/capability.h.
BITS = {
    "CAP_DAC_OVERRIDE": 1,
    "CAP_SYS_PTRACE": 19,
    "CAP_SYS_ADMIN": 21,
    "CAP_SYSLOG": 34,
    "CAP_PERFMON": 38,
    "CAP_BPF": 39,
}


class Right(NamedTuple):
    """A capability: its purpose, whether it is needed on this node, and whether we have it.

    `held` is `None` if that cannot be read. `without` is what is lost without it.
    """

    name: str
    reason: str
    needed: bool
    held: bool | None
    without: str


class Parts(NamedTuple):
    """Optional parts of the recorder that are enabled."""

    probe: bool = True
    trace: bool = True
    ring: bool = True
    stacks: bool = False


def effective(host: Host) -> int | None:
    """This process's effective capabilities, as bits."""
    try:
        status = text(host.files, "/proc/self/status") if host.live else ""
    except SourceError:
        return None
    found = [line for line in status.split("\n") if line.startswith("CapEff:")]
    return int(found[0].split()[1], 16) if found else None


def has(capabilities: int | None, *names: str) -> bool | None:
    """All of these, or CAP_SYS_ADMIN, which was all there was before Linux 5.8.

    >>> has(1 << 39 | 1 << 38, "CAP_BPF", "CAP_PERFMON"), has(1 << 39, "CAP_BPF", "CAP_PERFMON")
    (True, False)
    >>> has(1 << 21, "CAP_BPF", "CAP_PERFMON"), has(None, "CAP_BPF")
    (True, None)
    """
    if capabilities is None:
        return None
    if capabilities >> BITS["CAP_SYS_ADMIN"] & 1:
        return True
    return all(capabilities >> BITS[name] & 1 for name in names)


def rights(host: Host, parts: Parts) -> tuple[Right, ...]:
    """Every capability the recorder may need."""
    held = effective(host)

    def one(name: str) -> bool | None:
        return None if held is None else bool(held >> BITS[name] & 1)

    restricted = _number(host, "/proc/sys/kernel/dmesg_restrict") != 0
    paranoid = _number(host, "/proc/sys/kernel/perf_event_paranoid")
    traces = parts.trace or parts.ring
    perf = parts.stacks and (paranoid is None or paranoid >= 0)
    return (
        Right(
            "CAP_SYSLOG",
            "/dev/kmsg if kernel.dmesg_restrict=1; symbols for stacks",
            restricted or parts.stacks,
            one("CAP_SYSLOG"),
            "kernel messages from the journal or a file, if at all",
        ),
        Right(
            "CAP_BPF",
            "the softirq probe (before Linux 5.8: CAP_SYS_ADMIN)",
            parts.probe,
            has(held, "CAP_BPF"),
            "no wait times; softirq and softnet counters remain",
        ),
        Right(
            "CAP_PERFMON",
            "the probe's tracepoints; perf, for stacks",
            parts.probe or perf,
            has(held, "CAP_PERFMON"),
            "no wait times; no stacks if perf_event_paranoid ≥ 0",
        ),
        Right(
            "CAP_SYS_ADMIN",
            "tracefs if not mounted; the probe's cost, else estimated",
            traces and not _tracefs_is_mounted(host),
            one("CAP_SYS_ADMIN"),
            "no cgroup events, no ring until tracefs is mounted",
        ),
        Right(
            "CAP_DAC_OVERRIDE",
            "for other users than root: trace instances, debugfs",
            traces and os.geteuid() != 0,
            True if os.geteuid() == 0 else one("CAP_DAC_OVERRIDE"),
            "no cgroup events and no ring",
        ),
        Right(
            "CAP_SYS_PTRACE",
            "/proc mounted with hidepid, if not in group root",
            _hides(host) and os.getegid() != 0 and 0 not in os.getgroups(),
            one("CAP_SYS_PTRACE"),
            "only our own processes in the process table",
        ),
    )


def _number(host: Host, path: str) -> int | None:
    try:
        return int(text(host.files, path))
    except (SourceError, ValueError):
        return None


def _tracefs_is_mounted(host: Host) -> bool:
    try:
        find_tracefs(host)
    except SourceError:
        return False
    return True


def _hides(host: Host) -> bool:
    """Whether /proc hides processes of other users."""
    try:
        lines = text(host.files, f"{host.self_dir}/mountinfo").split("\n")
    except SourceError:
        return False
    options = [
        line.rpartition(" ")[2] for line in lines if " /proc " in line and " - proc " in line
    ]
    hidden = [part for last in options[-1:] for part in last.split(",") if "hidepid=" in part]
    return any(part not in ("hidepid=0", "hidepid=off") for part in hidden)


class Wanted(NamedTuple):
    """Options of the recorder."""

    directory: Path
    limits: Limits
    parts: Parts = Parts()
    cpu_percent: float | None = None
    memory_bytes: int = budget.MEMORY_BYTES
    ship: str = ""


class Planned(NamedTuple):
    """A source: how often it is read, and what a reading cost just now.

    `read_s` is `None` if it could not be read: `state`, `detail` and `grant` say why. `closer`: it
    is read every second while an alarm is active.
    """

    id: str
    path: str
    period_s: float
    closer: bool
    state: str
    detail: str
    grant: str
    read_s: float | None
    rows: int

    @property
    def share(self) -> float:
        """Of one core."""
        return (self.read_s or 0.0) / self.period_s


class KernelUse(NamedTuple):
    """Events taken from the kernel, and the kernel memory they need.

    `problem` is empty if nothing prevents it, as far as can be seen without trying.
    """

    what: str
    events: tuple[str, ...]
    buffer_bytes: int
    how: str
    problem: str
    grant: str


class Program(NamedTuple):
    """A child the recorder would start."""

    name: str
    what: str
    problem: str
    grant: str


class Room(NamedTuple):
    """The disk under the recording; `free_bytes` is `None` if unknown."""

    place: str
    free_bytes: int | None
    an_hour: float
    stacks_an_hour: float
    limits: Limits
    pinned_share: float

    @property
    def full(self) -> float:
        """The size it will reach, limited by age or by bytes."""
        hours = self.limits.age_s / 3600
        return min(self.limits.most_bytes, hours * (self.an_hour + self.stacks_an_hour))


@dataclass(frozen=True, slots=True)
class Preflight:
    """The whole result. `problem` is why the recorder cannot start, empty if it can."""

    directory: str
    problem: str
    reads: tuple[Planned, ...]
    kernel: tuple[KernelUse, ...]
    programs: tuple[Program, ...]
    rights: tuple[Right, ...]
    room: Room
    cores: int
    written_share: float
    cpu_percent: float
    memory_bytes: int
    ship: str
    not_read: tuple[str, ...]

    @property
    def share(self) -> float:
        """Share of one core, for reading and writing."""
        return sum(source.share for source in self.reads) + self.written_share

    @property
    def kernel_bytes(self) -> int:
        """Kernel buffers of what is available."""
        return sum(use.buffer_bytes for use in self.kernel if not use.problem)


def preflight(host: Host, wanted: Wanted) -> Preflight:
    """Inspect this node, and change nothing."""
    parts = wanted.parts
    sources = recorded_sources(probe=parts.probe, trace=parts.trace)
    reads, rows = _read(host, sources)
    periods = {table(kind): source.period_s for source in sources for kind in source.rows}
    cores = os.cpu_count() or 1
    kernel = _kernel(host, parts, cores)
    if any(use.events == _PROBED and not use.problem for use in kernel):
        rows[table(SoftirqWait)], rows[table(ProbeCost)] = 2 * cores, 1
    rows_a_second = sum(number / periods[name] for name, number in rows.items())
    stacks = stacks_bytes_an_hour(cores, Rotation.for_cores(cores).hertz) if parts.stacks else 0.0
    room = Room(
        *_free(wanted.directory), bytes_an_hour(rows, periods), stacks, wanted.limits, PINNED_SHARE
    )
    return Preflight(
        directory=str(wanted.directory),
        problem=why_not(host, wanted.directory),
        reads=reads,
        kernel=kernel,
        programs=_programs(host, parts),
        rights=rights(host, parts),
        room=room,
        cores=cores,
        written_share=rows_a_second * WRITE_S,
        cpu_percent=budget.default_percent() if wanted.cpu_percent is None else wanted.cpu_percent,
        memory_bytes=wanted.memory_bytes,
        ship=shown(wanted.ship) if wanted.ship else "",
        not_read=_not_read(parts),
    )


def why_not(host: Host, directory: Path) -> str:
    """Why the recorder cannot start here, in one line; empty if it can."""
    if not host.live:
        return "record works only on the node it runs on: remove --root"
    place = _nearest(directory)
    if not place.is_dir():
        return f"{place}: not a directory"
    if place.parts[1:2] in _KERNELS_OWN:
        return f"{place}: a kernel filesystem, cannot hold a recording"
    for path in (place, *(directory / name for name in ("LOCK", *DIRECTORIES))):
        needed = os.W_OK | os.X_OK if path.is_dir() else os.W_OK
        if os.path.lexists(path) and not os.access(path, needed, effective_ids=True):
            return f"{path}: {_refusal(path)}"
    if is_locked(directory):
        return f"{directory}: {lock_holder(directory)} is recording here already"
    return ""


def _refusal(path: Path) -> str:
    read_only = os.statvfs(path).f_flag & os.ST_RDONLY
    return "read-only file system" if read_only else "this user may not write there"


def _nearest(directory: Path) -> Path:
    """The directory, or the nearest parent that exists."""
    whole = directory.absolute()
    return next(parent for parent in (whole, *whole.parents) if os.path.lexists(parent))


def _free(directory: Path) -> tuple[str, int | None]:
    place = _nearest(directory)
    try:
        return str(place), shutil.disk_usage(place).free
    except OSError:
        return str(place), None


def _read(host: Host, sources: Sequence[Source]) -> tuple[tuple[Planned, ...], dict[str, int]]:
    """Each source with its cost, and the number of rows in a reading of each table.

    Hourly sources are read once, others twice.
    """
    opened = [source for source in sources if not source.id.startswith(_NOT_OPENED)]
    often = {source.id for source in opened if source.period_s <= TABLES_S}
    with Sampler(host, opened) as sampler:
        sampler.run(0)
        first = {state.id: state for state in sampler.states()}
        sampler.read_now({name for name in often if first[name].state == "ok"})
        second = {state.id: state for state in sampler.states()}
        window = sampler.window()
    rows = {
        table(kind): len(window.latest(kind) or ()) for source in opened for kind in source.rows
    }
    queues = rows.get(table(NicQueue))
    if queues:  # only the NIC's interrupts are kept
        rows[table(Interrupt)] = min(queues, rows.get(table(Interrupt), 0))
    of_source = {source.id: sum(rows[table(kind)] for kind in source.rows) for source in opened}
    planned = (
        _planned(source, (first[source.id], second[source.id]), of_source[source.id])
        for source in opened
    )
    return tuple(planned), rows


def _planned(source: Source, states: tuple[SourceState, SourceState], rows: int) -> Planned:
    first, last = states
    read_s = None
    if last.state == "ok":
        again = last.reads > first.reads
        read_s = delta(first.spent_s, last.spent_s) if again else first.spent_s
    return Planned(
        id=source.id,
        path=source.path,
        period_s=source.period_s,
        closer=source.id in CLOSER,
        state=last.state,
        detail=last.detail,
        grant=last.grant,
        read_s=read_s,
        rows=rows,
    )


def _kernel(host: Host, parts: Parts, cores: int) -> tuple[KernelUse, ...]:
    used = []
    tracing = _tracing(host) if parts.trace or parts.ring else ("", "")
    if parts.trace:
        how = f"private trace instance, {BUFFER_KB} kB a core, memory hierarchy only"
        size = BUFFER_KB * 1024 * cores
        used.append(KernelUse("cgroup events", _CGROUP_EVENTS, size, how, *tracing))
    if parts.ring:
        per_core_kb = buffer_kb(cores)
        names = tuple(name.replace("/", ":") for name in EVENTS)
        how = f"second instance, overwriting, {per_core_kb:,} kB a core, read at alarms"
        used.append(KernelUse("event ring", names, per_core_kb * 1024 * cores, how, *tracing))
    held = effective(host)
    if parts.probe:
        how = "two BPF programs, bounded"
        problem = "" if has(held, "CAP_BPF", "CAP_PERFMON") else "needs CAP_BPF and CAP_PERFMON"
        grant = "sudo sexton record" if problem else ""
        size = VALUE_BYTES * cores
        used.append(KernelUse("softirq probe", _PROBED, size, how, problem, grant))
    if parts.stacks:
        hertz = Rotation.for_cores(cores).hertz
        how = f"perf at {hertz} Hz on every core, {_PERF_PAGES * 4} kB a core"
        problem, grant = _perf(host)
        size = _PERF_PAGES * 4096 * cores
        used.append(KernelUse("stacks", ("cpu-clock",), size, how, problem, grant))
    return tuple(used)


def _tracing(host: Host) -> tuple[str, str]:
    """Why a trace instance is not possible, and what would help; both empty if it is."""
    try:
        place = find_tracefs(host)
        instances = f"{place}/instances"
        if os.access(instances, os.W_OK | os.X_OK, effective_ids=True):
            return "", ""
        problem = f"{instances} may not be written"
    except SourceError as error:
        problem = str(error)
    try:
        # As the recorder would: invisible to others, gone when closed.
        os.close(detached("tracefs"))
    except OSError:
        return problem, f"{GRANT}; sudo sexton record"
    return "", ""


def _perf(host: Host) -> tuple[str, str]:
    if shutil.which("perf", path=_PATH) is None:
        return "perf is not installed", INSTALL
    paranoid = _number(host, "/proc/sys/kernel/perf_event_paranoid")
    if (paranoid is not None and paranoid < 0) or has(effective(host), "CAP_PERFMON"):
        return "", ""
    return "needs CAP_PERFMON, or kernel.perf_event_paranoid below 0", AS_ROOT


def _programs(host: Host, parts: Parts) -> tuple[Program, ...]:
    missing = shutil.which("journalctl", path=_PATH) is None
    problem = "not installed: restarts before the recording are unknown" if missing else ""
    found = [Program("journalctl", "what units and sessions did, once an hour", problem, "")]
    own = [f"seals segments every {SEGMENT_S / 60:.0f} min", "reads slow files"]
    if parts.ring:
        own.append("captures the ring at an alarm")
    if parts.stacks:
        own.append("decodes stacks")
    found.append(Program("python", "; ".join(own), "", ""))
    if parts.stacks:
        found.append(
            Program(
                "perf",
                f"perf record, continuous, nice {NICE}, exits with the recorder",
                *_perf(host),
            )
        )
    return tuple(found)


def _not_read(parts: Parts) -> tuple[str, ...]:
    if not parts.stacks:
        return (f"{NOT_READ[0]} (except {_BUT})", *NOT_READ[1:])
    but = f"{_BUT}, {_BUT_PERF}"
    return (f"{NOT_READ[0]} (except {but})", *NOT_READ[1:-1], f"{NOT_READ[-1]} ({_BUT_NAMES})")


FILE_BYTES = 2_500
#: The list of readings, the manifest.
SEGMENT_BYTES = 30_000
ROW_BYTES = {
    "cgroup_dir": 1.5,
    "controller": 1.3,
    "core_times": 8.0,
    "interrupt": 10.0,
    "kernel_log": 10.0,
    "net_device": 20.0,
    "nic_counter": 1.9,
    "pressure": 8.0,
    "process": 2.8,
    "process_cgroup": 14.0,
    "run_queue": 14.4,
    "softirq_count": 12.4,
    "softirq_wait": 30.0,
    "softnet_cpu": 2.6,
    "tcp_counters": 20.0,
    "thread": 7.0,
    "unit": 2.0,
    "vm_counter": 1.3,
}
_OTHER_ROW_BYTES = 20.0
#: The most that a decoded sample took in our measurements, kernel and user stacks.
KEPT_STACK_BYTES = 10.0


def segment_bytes(rows: Mapping[str, float]) -> float:
    """The size of a sealed segment with this many rows of each table."""
    return sum(
        FILE_BYTES + number * ROW_BYTES.get(name, _OTHER_ROW_BYTES) for name, number in rows.items()
    )


def bytes_an_hour(per_reading: Mapping[str, int], periods: Mapping[str, float]) -> float:
    """From the rows in one reading of each table, and how often it is read."""
    segments = 3600 / SEGMENT_S
    regular = {
        name: number * max(1.0, SEGMENT_S / periods[name])
        for name, number in per_reading.items()
        if number and periods[name] <= SEGMENT_S
    }
    return segments * (SEGMENT_BYTES + segment_bytes(regular))


def stacks_bytes_an_hour(cores: int, hertz: int) -> float:
    """Decoded stacks, every core sampled all the time."""
    return KEPT_STACK_BYTES * cores * hertz * 3600
