"""The kernel killed processes because a cgroup's limit or the node's memory was used up.

**What is seen.** The OOM killer's lines in the kernel log: which process was killed, how much
memory it had, and by which limit: a cgroup's (``oom_memcg=``) with its size, or the node's. A
container that is made anew under another ID counts as the same: the same program, the same limit,
the same parent. The evidence has the kernel's own counts as well (`oom_kill` in `/proc/vmstat`, in
`memory.events` or v1's `memory.oom_control`), and the cgroup that is closest to its limit now.
Where the log may not be read, or does not go back far enough, these counts tell how many were
killed since boot and in which cgroups: a note, or a problem if the node was booted less than an
hour ago.

**Why it hurts.** A process that is killed cleans nothing up: a job loses its work, a service is
restarted, runs into the same limit and leaves a dead cgroup each time. If the *node* runs out, the
kernel takes the biggest process, whichever it is.

**What would make it wrong.** A limit is a decision, and a batch job may be meant to die at it. The
log is a ring buffer that drops old lines, so the counter may know of kills that the log no longer
has; the finding says how far back the log goes. The kernel leaves out the line with the cgroup's
name if it kills more than ten times in five seconds; such kills are counted, their cgroup is
unknown. Use close to a limit is no shortage by itself, since page cache counts too and is reclaimed
first. Kills by systemd-oomd, earlyoom or a kubelet's eviction are signals like any other, and not
counted here.

**Check by hand.** ``dmesg -T | grep -E 'oom-kill:|Killed process'``;
``grep oom_kill /proc/vmstat``; ``cat /sys/fs/cgroup/PATH/memory.events``
(v1: ``/sys/fs/cgroup/memory/PATH/memory.oom_control``).

**What to do.** Compare the limit with what the program needs: ``systemctl show -p MemoryMax UNIT``,
a pod's ``resources.limits.memory``. Raise it, or find out why the program needs more than it used
to. Where the node was short: ``ps -eo rss,pid,comm --sort -rss | head``, and give the biggest a
limit of its own, so that it is killed and not its neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import NamedTuple

from sexton.detect import kernel_log, oom_counts
from sexton.detect.detectors.memory.memory_pressure import BIGGEST_PROCESSES
from sexton.detect.findings import absent, names, unknown
from sexton.detect.kernel_log import DAY_S, NO_REACH, Reach
from sexton.detect.oom import FAMILY, Kill, kills
from sexton.detect.oom_counts import Counted
from sexton.detect.registry import ANY_INTERVAL, READS, Advice, Averages, Stage, Threshold, detector
from sexton.detect.stems import container, join, path_stem, pattern, split
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cgroup import CgroupCensus, CgroupDir, CgroupMemory
from sexton.model.rows.memory import VmCounter
from sexton.model.text import clock, count, size
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series import paging
from sexton.series.rates import totals_in

NAME = "oom_kills"

RECENT = Threshold(
    "recent",
    3600,
    "s",
    "time for an engineer to respond, but not so long that the node stays unhealthy all day",
)
NODE_RECENT = Threshold(
    "recent for the node", DAY_S, "s", "the next daily peak may trigger another kill"
)
AGAIN = Threshold("again", 3, "kills of one cgroup", "one may be a bad input; three are a loop")
AGAIN_S = Threshold("again within", 3600, "s", "a leak that takes hours to fill is another matter")
NEAR = Threshold("near", 90, "% of its limit", "one large request more, and it is reached")
_SHOWN = 8
_NEAR_SHOWN = 3
_V1_FILES = "memory.usage_in_bytes, memory.limit_in_bytes"
_V2_FILES = "memory.current, memory.max"
_WHO_HAD_IT = Step(
    "dmesg -T | grep -B 40 -A 2 'oom-kill:' | less",
    "see which processes had the memory when it was killed, and what was using it",
    READS,
)
_LOG = "sudo sexton diagnose  # the kernel log names process and cgroup"


class _Group(NamedTuple):
    """Kills by the same limit, or by that of a container that is made anew each time; the oldest
    first."""

    kills: list[Kill]
    severity: Severity

    @property
    def last(self) -> Kill:
        return self.kills[-1]

    @property
    def name(self) -> str | None:
        """The cgroup; a pattern if there were several."""
        homes = names(kill.home for kill in self.kills)
        if len(homes) < 2:
            return self.last.home
        parent = split(homes[0])[0]
        return join(parent, pattern(split(home)[1] for home in homes))

    @property
    def cgroups(self) -> tuple[str, ...]:
        """The cgroups, the latest first, and the parent of those that come and go."""
        homes = names(kill.home for kill in reversed(self.kills))
        return homes if len(homes) < 2 else (*homes[:_SHOWN], split(homes[0])[0])

    @property
    def times(self) -> int:
        """How often the OOM killer ran: with `memory.oom.group` it kills several at once."""
        return sum(not kill.along for kill in self.kills) or 1

    @property
    def limit_bytes(self) -> int | None:
        known = [kill.limit_bytes for kill in self.kills if kill.limit_bytes is not None]
        return known[-1] if known else None


def _ruled_out(window: Window) -> str:
    return "OOM kills" if oom_counts.counted(window).total == 0 else ""


def _look(finding: Finding, window: Window) -> Sequence[Step]:
    units, cgroups = finding.entities.get("unit", ()), finding.entities.get("cgroup", ())
    worst = next(iter(_groups(window, kills(window))), None)
    if worst is not None and worst.last.scope not in ("cgroup", ""):
        # No limit of the killed process's unit was reached: the node ran out.
        return [_WHO_HAD_IT, *BIGGEST_PROCESSES.steps(finding, window)]
    why = "see its limit; raise it, or find out why the program needs more"
    if units:
        return [Step(f"systemctl show -p MemoryMax -p MemoryPeak {quote(units[0])}", why, READS)]
    census = next(iter(window.latest(CgroupCensus) or ()), None)
    alive = {row.path for row in window.latest(CgroupDir) or ()}
    if cgroups and cgroups[0] in alive and census is not None and census.mount_point:
        files = ("memory.limit_in_bytes", "memory.max_usage_in_bytes")
        if census.version == 2:
            files = ("memory.max", "memory.peak")
        place = f"{census.mount_point}{cgroups[0]}"
        return [Step(" ".join(["head", *(quote(f"{place}/{name}") for name in files)]), why, READS)]
    if cgroups:
        return [_WHO_HAD_IT]
    return BIGGEST_PROCESSES.steps(finding, window)


@detector(
    thresholds=(RECENT, NODE_RECENT, AGAIN, AGAIN_S, NEAR),
    title="OOM kills",
    story="Processes were killed for memory",
    lanes=("events", "pressure"),
    about=("cgroup", "unit", "task"),
    answers={"unit": 5, "cgroup": 5, "task": 6, "job": 4},
    events=(FAMILY,),
    ruled_out=_ruled_out,
    advice=Advice(Stage.LOOK, _look),
    averages=Averages((VmCounter, CgroupMemory), ANY_INTERVAL, "kills"),
)
def detect(window: Window) -> Finding:
    """Which processes were killed, by which limit and how often; the gravest limit first."""
    counted = oom_counts.counted(window)
    found = kills(window)
    groups = _groups(window, found)
    unlogged = counted.recent if counted.recent and not _is_logged(window, found) else None
    if groups and (unlogged is None or groups[0].severity is not Severity.INFO):
        return _killed(window, groups, counted)
    if unlogged is not None:
        return _unnamed(window, unlogged, counted)
    return _none(window, counted)


def _is_logged(window: Window, found: Sequence[Kill]) -> bool:
    """Is one of these kills from this window, or of an unknown time?"""
    return any(kill.wall_s is None or kill.wall_s >= window.start for kill in found)


def _groups(window: Window, found: Sequence[Kill]) -> list[_Group]:
    """By limit; the gravest first, of equals the one with the latest kill."""
    by_limit: dict[tuple[object, ...], list[Kill]] = {}
    for kill in found:
        by_limit.setdefault((kill.scope, *_limit(kill)), []).append(kill)
    made = [_Group(mine, _severity(window, mine)) for mine in by_limit.values()]
    return sorted(made, key=lambda group: (-group.severity.rank, group.last.age_s or 0.0))


def _limit(kill: Kill) -> tuple[object, ...]:
    """What names the limit. A container that is made anew gets a cgroup with another ID: the same
    program under the same limit is the same container. A pod's cgroup stays."""
    home = kill.home
    if home is None or container(home) in (None, "Kubernetes pod"):
        return (home,)
    parent, name = split(home)
    return parent, path_stem(name), kill.comm, kill.limit_bytes


def _severity(window: Window, mine: Sequence[Kill]) -> Severity:
    recent = [kill for kill in mine if _is_recent(kill, window)]
    if not recent:
        return Severity.WARNING if any(kill.age_s is None for kill in mine) else Severity.INFO
    if recent[-1].scope == "node":
        return Severity.CRITICAL
    again = recent[-1].home is not None and _often(recent)
    return Severity.CRITICAL if again else Severity.WARNING


def _is_recent(kill: Kill, window: Window) -> bool:
    if kill.wall_s is None or kill.age_s is None:
        return False
    limit = NODE_RECENT if kill.scope == "node" else RECENT
    return kill.age_s <= limit.value or window.start <= kill.wall_s <= window.end


def _often(recent: Sequence[Kill]) -> bool:
    ages = [kill.age_s for kill in recent if kill.age_s is not None and not kill.along]
    behind = ages[int(AGAIN.value) - 1 :]
    return any(first - last <= AGAIN_S.value for first, last in zip(ages, behind, strict=False))


def _killed(window: Window, groups: Sequence[_Group], counted: Counted) -> Finding:
    reach = kernel_log.reach(window) or NO_REACH
    worst = groups[0]
    info = Severity.INFO
    shown = [group for group in groups if group.severity is not info or worst.severity is info]
    every = [kill for group in shown for kill in group.kills]
    dated = sorted(kill.wall_s for kill in every if kill.wall_s is not None)
    evidence = [*_evidence(worst, reach), *_near(window, least=0.0)]
    evidence += [line for group in groups[1:_SHOWN] for line in _evidence(group, reach)]
    evidence += oom_counts.evidence(counted)
    return Finding(
        NAME,
        Verdict.PRESENT,
        worst.severity,
        _summary(worst, shown[1:]),
        entities={
            "cgroup": names([*(name for group in shown for name in group.cgroups), *_homes(every)]),
            "unit": names(kill.unit for kill in reversed(every)),
            "task": names(kill.task for kill in reversed(every)),
        },
        start=dated[0] if dated else None,
        end=dated[-1] if dated else None,
        evidence=tuple(evidence),
    )


def _homes(every: Sequence[Kill]) -> tuple[str, ...]:
    """Cgroups of processes that were killed at a cgroup's limit; the latest first."""
    at_limits = [kill for kill in reversed(every) if kill.scope == "cgroup"]
    return names(kill.task_cgroup for kill in at_limits)[:_SHOWN]


def _summary(group: _Group, others: Sequence[_Group]) -> str:
    last = group.last
    age = f"{duration(last.age_s)} ago" if last.age_s is not None else "at an unknown time"
    more = f"; also at {count(len(others), 'other limit')}" if others else ""
    if len(others) == 1 and others[0].name is not None:
        more = f"; also {len(others[0].kills):,} in {others[0].name}"
    killed = "the OOM killer killed"
    if last.scope == "node":
        killed = f"the node ran out of memory and {killed}"
    if len(group.kills) == 1:
        return f"{killed} {last.words}{_where(group)} {age}{more}"
    often = "once" if group.times == 1 else f"{group.times:,} times"
    times = f", {often}" if group.times != len(group.kills) else ""
    return (
        f"{killed} {len(group.kills):,} processes{_where(group)}{times}{_within(group)};"
        f" last {last.words} {age}{more}"
    )


def _where(group: _Group) -> str:
    """Whose limit it was."""
    last = group.last
    if last.scope == "cgroup" and group.name is not None:
        unit = last.unit
        whose = f"{unit}, " if unit is not None and unit not in group.name else ""
        limit = f" ({whose}limit {size(group.limit_bytes)})" if group.limit_bytes else ""
        return f" in {group.name}{limit}"
    if last.scope == "cgroup":
        return " in a cgroup that the log does not name"
    if last.scope and last.scope != "node":
        return f" for the memory nodes of a {last.scope}"
    return ""


def _within(group: _Group) -> str:
    ages = [kill.age_s for kill in group.kills if kill.age_s is not None]
    return f" within {duration(max(ages[0] - ages[-1], 0.1))}" if len(ages) > 1 else ""


def _evidence(group: _Group, reach: Reach) -> Iterator[Evidence]:
    where = group.name or ("the node" if group.last.scope == "node" else "an unnamed cgroup")
    yield Evidence(
        f"OOM kills in {where}",
        f"{len(group.kills):,}",
        "0",
        f"processes {reach.words}",
        reach.origin,
        float(len(group.kills)),
        "it is meant to be killed at its limit",
    )
    last = group.last
    if last.rss_bytes is not None:
        limit = group.limit_bytes
        yield Evidence(
            f"last killed, {last.task}",
            size(last.rss_bytes),
            f"< {size(limit)}" if limit is not None else "less",
            "bytes resident when it was killed",
            reach.origin,
            float(last.rss_bytes),
            "shared pages count for every process that maps them",
        )


def _near(window: Window, least: float | None = None) -> list[Evidence]:
    """Cgroups that are close to their limits now, the fullest first; if none is, the fullest of
    those with `least` per cent and more."""
    least = NEAR.value if least is None else least
    rows = [row for row in window.latest(CgroupMemory) or () if row.limit_bytes > 0]
    rows.sort(key=lambda row: (-row.used_bytes / row.limit_bytes, row.path))
    full = [row for row in rows if 100 * row.used_bytes >= NEAR.value * row.limit_bytes]
    full = full or [row for row in rows[:1] if 100 * row.used_bytes >= least * row.limit_bytes]
    return [
        Evidence(
            f"{row.path} now",
            f"{100 * row.used_bytes / row.limit_bytes:.0f} % of {size(row.limit_bytes)}",
            f"< {NEAR.value:.0f} %",
            "% of its limit",
            _files(window),
            100 * row.used_bytes / row.limit_bytes,
            "most of it is page cache, which is reclaimed before anything is killed",
        )
        for row in full[:_NEAR_SHOWN]
    ]


def _files(window: Window) -> str:
    """The files that have use and limit of a cgroup."""
    census = next(iter(window.latest(CgroupCensus) or ()), None)
    version = None if census is None else census.version
    files = {1: _V1_FILES, 2: _V2_FILES}.get(version or 0)
    return files or f"{_V2_FILES}; v1: {_V1_FILES}"


def _unnamed(window: Window, recent: int, counted: Counted) -> Finding:
    """The counter moved, and no log line names the process; `memory.events` may show the cgroup."""
    counters = totals_in(window, CgroupMemory, "killed") or {}
    where = sorted((-mine.get("killed", 0.0), str(thing[0])) for thing, mine in counters.items())
    paths = [path for number, path in where if number < 0]
    limits = {row.path: row.limit_bytes for row in window.latest(CgroupMemory) or ()}
    inside = ""
    if paths:
        limit = f" (limit {size(limits[paths[0]])})" if paths[0] in limits else ""
        inside = f" in {paths[0]}{limit}"
    lacking, whose = kernel_log.lacking(window), "only the kernel log has names"
    if not lacking:
        lacking = (Missing("no line in the kernel log names the process", _LOG),)
        whose = "the log does not name them"
    start, end, when = _when(window)
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING,
        f"the OOM killer killed {count(recent, 'process', 'processes')}{inside} {when}; {whose}",
        entities={"cgroup": tuple(paths)},
        start=start,
        end=end,
        evidence=(*oom_counts.evidence(counted), *_near(window, least=0.0)),
        missing=lacking,
    )


def _when(window: Window) -> tuple[float, float, str]:
    """Between which readings the counter rose."""
    risen = paging.risen(window, "killed")
    if risen is not None:
        start, end = map(window.wall, risen)
        if start > window.start or end < window.end:
            return start, end, f"between {clock(start)} and {clock(end)} UTC"
    return window.start, window.end, f"in {duration(window.seconds)}"


def _earlier(window: Window, total: int, reach: Reach | None, counted: Counted) -> Finding:
    """Kills since boot that the log does not show: as recent as the boot, at least."""
    where = oom_counts.counted_in(window)
    booted = window.end_mono
    when = "when is in the kernel log only"
    if reach is not None:
        when = f"none {reach.words}, all that the log covers"
        if reach.seconds is None:
            when = "none in the log, which has no dates"
    inside = "".join(f", {number:,} of them in {path}" for path, number in where[:1])
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING if booted <= RECENT.value else Severity.INFO,
        f"the OOM killer killed {count(total, 'process', 'processes')} since boot"
        f" {duration(booted)} ago{inside}; {when}",
        entities={"cgroup": names(path for path, _ in where)},
        evidence=(
            *oom_counts.evidence(counted),
            *(oom_counts.evidence_in(path, number) for path, number in where[:_SHOWN]),
            *_near(window, least=0.0),
        ),
        missing=kernel_log.lacking(window),
    )


def _none(window: Window, counted: Counted) -> Finding:
    """Absent if the counter is zero or the log goes back far enough; unknown if neither is known.
    Kills that only the counters know are present."""
    reach = kernel_log.reach(window)
    if counted.total == 0:
        evidence = [*oom_counts.evidence(counted), *_near(window)]
        return absent(NAME, "0 OOM kills since boot", evidence)
    if reach is not None and reach.covers(RECENT.value):
        earlier = f"; {counted.total:,} since boot, before the log begins" if counted.total else ""
        line = reach.no_lines("OOM kills in the kernel log", number=0.0)
        text = f"0 OOM kills {reach.words}{earlier}"
        return absent(NAME, text, [line, *oom_counts.evidence(counted), *_near(window)])
    total = counted.total or max((number for _, number in oom_counts.counted_in(window)), default=0)
    if total:
        return _earlier(window, total, reach, counted)
    if reach is not None:
        lacking = (Missing(f"a kernel log of the last {duration(RECENT.value)}", _LOG),)
        return unknown(NAME, f"OOM kills: the log shows none {reach.words} only", lacking)
    what = "whether the OOM killer ran is unknown"
    return unknown(NAME, what, kernel_log.lacking(window))
