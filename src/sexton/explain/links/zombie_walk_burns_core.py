"""A periodic reader of memory statistics makes the kernel walk the dead cgroups, on one core.

**Rule.** With kernel stacks (``--stacks``) they decide: *proven* where the walk's functions are in
a fifth or more of the held core's kernel samples in those seconds, and no link at all where they
are in fewer than one in twenty. Without stacks it is at best *likely*: the task that held the core
is a known reader of cgroup statistics and one read at the root is measured or estimated at half a
second or more. *Possible*: only one of the two. Nothing where neither was seen: two symptoms on one
node are no chain.

**Speaks against it.** A walk measured as fast (newer kernels), a core held in softirq, or, without
stacks, a task that is no known reader of statistics.
"""

from __future__ import annotations

import re

from sexton.detect.ceilings import cost as walk_cost
from sexton.detect.ceilings import is_bound
from sexton.detect.detectors.saturated_core import BY_KIND
from sexton.detect.stacks import on_cores
from sexton.explain.registry import link
from sexton.model.cgroup import CgroupCensus, WalkCost
from sexton.model.chain import Link, Strength
from sexton.model.finding import Evidence, Finding
from sexton.model.text import seconds
from sexton.model.window import Window

#: Programs known to read memory statistics of every cgroup in turn; matched at the start of comm,
#: which the kernel cuts to 15 characters.
READERS = (
    "kubelet",
    "cadvisor",
    "containerd",
    "dockerd",
    "crio",
    "systemd-oomd",
    "node_exporter",
    "telegraf",
    "dd-agent",
    "datadog-agent",
    "amazon-cloudwat",
)
#: Kernel functions that walk memory cgroups; inlining and versions differ, so a family is matched.
WALK = re.compile(
    r"^(mem_cgroup_(nr_lru_pages|node_nr_lru_pages|iter\w*|flush_stats\w*)|memcg_(numa_)?stat_show"
    r"|memcg_sum_events|memory_stat_(show|format)|css_next_descendant_p\w+|css_rstat_flush\w*"
    r"|cgroup_rstat_flush\w*|lru_gen_seq_show)"
)
#: A statistics walk spends nearly all its time in them; reclaim over the dead 30 to 41 % (measured
#: on 6.18), the rest in what it does at each one. Where few are walked they hardly show.
PROVES_SHARE = 1 / 5
DISPROVES_SHARE = 1 / 20
#: A walk shorter than this cannot hold a core for seconds.
SLOW_WALK_S = 0.5
#: Per cent of the held core; less, and softirq held it.
_MOSTLY_SYSTEM = 50.0


@link(cause="zombie_memcgs", effect="saturated_core")
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """The walk over the dead, straight to the core."""
    return judge("zombie_walk_burns_core", (cause, effect), window)


def judge(name: str, ends: tuple[Finding, Finding], window: Window) -> Link | None:
    """Stacks where there are any; else reader and walk cost, each counting on its own."""
    cause, effect = ends
    readers = [task for task in effect.entities.get("task", ()) if task.startswith(READERS)]
    walk = dearest_walk(window)
    cost = None if walk is None else walk_cost(walk)
    slow = cost is not None and cost >= SLOW_WALK_S
    share = _walk_share(effect, window)
    if share is not None and share < DISPROVES_SHARE:
        return None
    if share is None and not readers and not slow:
        return None
    evidence: tuple[Evidence, ...] = ()
    if walk is not None and cost is not None:
        measured = "measured" if walk.root_s is not None else "estimated, not caused"
        evidence = (
            Evidence(
                f"one read of {walk.file} at the root",
                f"{seconds(cost)} ({measured})",
                "< 10 ms",
                "s",
                f"{walk.path}, {walk.memcgs} memcgs timed",
                cost,
            ),
        )
    if share is not None:
        evidence += (
            Evidence(
                "walk functions in the held core's kernel samples",
                f"{100 * share:.0f} %",
                "< 5 %",
                "% of samples",
                "perf record",
                100 * share,
            ),
        )
    against = [] if slow or cost is None else [f"a read at the root takes only {seconds(cost)}"]
    against += _not_in_system(effect)
    if share is None and not readers:
        tasks = effect.entities.get("task", ())[:1]
        against += [f"{task} is no known reader of memory statistics" for task in tasks]
    return Link(
        name,
        cause.id,
        effect.id,
        _strength(share, bool(readers), slow),
        _sentence(share, readers, cost),
        shared=tuple(readers),
        evidence=evidence,
        against=tuple(against),
    )


def dearest_walk(window: Window) -> WalkCost | None:
    """The slowest read whose cost is known; an upper bound proves nothing."""
    census = window.latest(CgroupCensus)
    total = census[0].total if census else None
    known = [each for each in window.latest(WalkCost) or () if not is_bound(each, total)]
    return max(known, key=walk_cost, default=None)


def _not_in_system(held: Finding) -> list[str]:
    return [
        f"{each.what}: {each.value}; a walk is system time"
        for each in held.evidence
        if each.what.endswith(BY_KIND) and (each.number or 0.0) < _MOSTLY_SYSTEM
    ]


def _strength(share: float | None, reader: bool, slow: bool) -> Strength:
    if share is not None and share >= PROVES_SHARE:
        return Strength.PROVEN
    return Strength.LIKELY if (reader and slow) or share is not None else Strength.POSSIBLE


def _sentence(share: float | None, readers: list[str], cost: float | None) -> str:
    if share is not None:
        return f"{100 * share:.0f} % of that core's kernel samples walk memory cgroups"
    who = readers[0] if readers else "the task on that core"
    reads = "reads memory statistics" if readers else "may read memory statistics"
    pace = f"; one read takes {seconds(cost)}" if cost is not None else ""
    return f"{who} {reads}{pace}; kernel stacks would prove it (--stacks)"


def _walk_share(held: Finding, window: Window) -> float | None:
    """The walk's share of the held core's samples; `None` where no stacks were taken there."""
    if held.start is None or held.end is None:
        return None
    rows = on_cores(window, held.entities.get("core", ()), (held.start, held.end))
    total = sum(row.samples for row in rows)
    walking = sum(row.samples for row in rows if any(map(WALK.match, row.frames)))
    return walking / total if total else None
