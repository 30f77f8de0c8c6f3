"""One read of memory statistics at the root walks every memory cgroup, and takes too long.

**What is seen.** The time one read of `memory.stat` and `memory.numa_stat` takes: on a small
subtree, extrapolated by the number of memory cgroups to the root; and at the root itself, only
where the estimate allowed it. The evidence says whether it was measured or estimated; above 50 ms
the root is deliberately not read, because that read would be the stall itself.

**Why it hurts.** Kubelet, cAdvisor and container runtimes read these files every few seconds. The
read holds one core in the kernel for as long as it takes, and at 5 s network drivers reset.

**What would make it wrong.** An estimate assumes that the cost grows with the number of memory
cgroups; newer kernels keep sums and stay flat, so an estimate is an upper bound and says so. A
machine that is busy otherwise, or a cold cache, makes the first read slow. Many *live* directories
cost as much as dying ones; the summary says which of the two it is.

**Check by hand.** On a small subtree, never at the root of a sick node:
``time cat /sys/fs/cgroup/memory/system.slice/memory.numa_stat``; and
``perf trace -s -e read -p $(pgrep kubelet)`` to see how long others wait.

**What to do.** Fewer memory cgroups: see *zombie_memcgs* if they are dying, *leaked_scopes* if
they are live. Until then lengthen the interval of their readers (cAdvisor's
``--housekeeping-interval``); a kernel from 5.8 on reads `numa_stat` without the walk.
"""

from __future__ import annotations

from sexton.detect.findings import absent, unknown
from sexton.detect.growth import cost, is_bound, latest_count
from sexton.detect.registry import Threshold, Treatment, detector
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cgroup import CgroupCensus, WalkCost
from sexton.model.text import count, seconds
from sexton.model.window import Window

NAME = "slow_memcg_stats"

NORMAL = Threshold("normal", 0.01, "s", "a healthy read takes 0.03 to 0.06 ms, 10 ms is generous")
WORTH_A_LINE = Threshold("worth a line", 0.1, "s", "readers read every few seconds: 1 % of a core")
SLOW = Threshold("slow", 1, "s", "a core held for a second delays everything that is bound to it")
GRAVE = Threshold("grave", 5, "s", "ENA and other drivers reset a queue that waited for 5 s")
#: The files that periodic readers read; `lru_gen` walks too, but nothing reads it periodically.
_READ_BY_OTHERS = "memory."


@detector(
    needs=(WalkCost,),
    thresholds=(NORMAL, WORTH_A_LINE, SLOW, GRAVE),
    title="slow memcg statistics",
    story="Reading memory statistics took long",
    lanes=("cores", "memcgs"),
    about=(),
    treatments=(Treatment.REMOVE_EMPTY,),
)
def detect(window: Window) -> Finding:
    """The slowest of the files that periodic readers read."""
    walks = sorted(
        (walk for walk in window.latest(WalkCost) or () if walk.file.startswith(_READ_BY_OTHERS)),
        key=cost,
        reverse=True,
    )
    if not walks:
        lacking = Missing("a memory.stat that can be timed", "sudo sexton diagnose")
        return unknown(NAME, "no memory statistics file could be timed here", (lacking,))
    census = latest_count(window)
    total = None if census is None else census.total
    vague = [walk for walk in walks if is_bound(walk, total)]
    sure = [walk for walk in walks if walk not in vague]
    evidence = [_timed(walk, vague=walk in vague) for walk in walks]
    crowd = _crowd(census)
    if crowd is not None:
        evidence.append(crowd)
    if sure and cost(sure[0]) >= WORTH_A_LINE.value:
        return _slow(window, sure[0], evidence, crowd)
    if vague and cost(vague[0]) >= WORTH_A_LINE.value:
        return _too_vague(vague[0], evidence)
    most = "at most " if walks[0] in vague else ""
    text = f"{most}{seconds(cost(walks[0]))} for one read of {walks[0].file} at the root"
    how = "" if walks[0] in vague else f" ({_how(walks[0])})"
    return absent(NAME, text + how, evidence)


def _slow(
    window: Window, worst: WalkCost, evidence: list[Evidence], crowd: Evidence | None
) -> Finding:
    length = cost(worst)
    severity = Severity.INFO
    if length >= SLOW.value:
        severity = Severity.CRITICAL if length >= GRAVE.value else Severity.WARNING
    whose = "" if crowd is None else f"; {crowd.value}"
    return Finding(
        NAME,
        Verdict.PRESENT,
        severity,
        f"{seconds(length)} for one read of {worst.file} at the root ({_how(worst)}){whose}",
        start=window.start,
        end=window.end,
        evidence=tuple(evidence),
    )


def _too_vague(worst: WalkCost, evidence: list[Evidence]) -> Finding:
    """Too few cgroups timed to separate a flat cost from a growing one."""
    lacking = Missing(
        "a subtree of some dozen live cgroups and few dying ones to time",
        f"on a quiet moment, off the NIC's cores: time cat SUBTREE/{worst.file}",
    )
    return Finding(
        NAME,
        Verdict.UNKNOWN,
        Severity.INFO,
        f"one read of {worst.file} at the root takes at most {seconds(cost(worst))}"
        f" (read skipped, only {count(worst.memcgs, 'cgroup')} timed)",
        evidence=tuple(evidence),
        missing=(lacking,),
    )


def _how(walk: WalkCost) -> str:
    return "measured" if walk.root_s is not None else "estimated, read skipped"


def _timed(walk: WalkCost, *, vague: bool) -> Evidence:
    if walk.root_s is not None:
        value, wrong_if = seconds(walk.root_s), "the first read on a cold cache, or a busy machine"
    else:
        value = f"{'at most' if vague else 'about'} {seconds(walk.estimate_s)}"
        wrong_if = "the cost does not grow with the number of memory cgroups on this kernel"
    note = f"; {walk.note}" if walk.note else ""
    return Evidence(
        f"one read of {walk.file} at the root, {_how(walk)}",
        value,
        f"< {seconds(NORMAL.value)}",
        "s of one core",
        f"{walk.path}: {seconds(walk.measured_s)} for {count(walk.memcgs, 'memcg')}{note}",
        cost(walk),
        wrong_if,
    )


def _crowd(census: CgroupCensus | None) -> Evidence | None:
    """Whether most of the cgroups walked are dying or live."""
    if census is None or census.dying is None or census.live is None:
        return None
    total = census.dying + census.live
    if census.dying >= census.live:
        value = f"{census.dying:,} of {total:,} are dying memory cgroups"
    else:
        value = f"{census.live:,} of {total:,} are live directories, not zombies"
    return Evidence(
        "what is walked",
        value,
        "a few hundred, nearly all live",
        "memory cgroups",
        census.method,
        float(total),
        "only a subtree was counted, or directories came and went while counting",
    )
