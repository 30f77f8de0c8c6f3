"""What a held core was executing: by its kernel stacks if there are any, else by its CPU times.

A finding is about the core that was held longest; its span, its split by kind and its stacks are
that core's, so no other core is examined here.

A stack belongs to one or more families of kernel functions. Those that detectors also use are in
`sexton.detect.families`. These rules separate competing causes:

- softirq work interrupts a task, so the task below it is not to blame;
- a page fault that ends in reclaim is reclaim, and reclaim that walks cgroups is also a walk;
- reclaim on request (memory.reclaim, a limit) is not a task that waits for a page;
- a walk without reclaim is for statistics, even if the reader's own frame is inlined;
- flushing statistics (`rstat`) costs by what changed, a walk by how many cgroups there are.

>>> sorted(families(("mem_cgroup_iter", "shrink_node", "do_try_to_free_pages", "do_syscall_64")))
['reclaim', 'walk']
>>> sorted(families(("__kmalloc_cache_noprof", "set_mm_walk", "shrink_lruvec", "shrink_node")))
['reclaim', 'walk']
>>> sorted(families(("clear_page_erms", "__handle_mm_fault", "asm_exc_page_fault")))
['fault']
>>> sorted(families(("process_backlog", "net_rx_action", "handle_softirqs", "mem_cgroup_iter")))
['network', 'softirq']
>>> sorted(families(("cgroup_rstat_flush_locked", "mem_cgroup_flush_stats", "memory_stat_show")))
['rstat', 'statistics']
>>> sorted(families(("shrink_node", "try_to_free_mem_cgroup_pages", "mem_cgroup_force_empty")))
['limit', 'ordered']
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

from sexton.detect.detectors.cpu.saturated_core import BY_KIND
from sexton.detect.families import (
    is_direct_reclaim,
    is_fault,
    is_ordered_reclaim,
    is_reclaim,
    is_rstat,
    is_shortage,
)
from sexton.detect.growth import latest_count
from sexton.detect.stacks import on_cores
from sexton.explain.order import together, when
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Evidence, Finding
from sexton.model.window import Window
from sexton.series.cores import bridged_series

WALK = "walk"
STATISTICS = "statistics"
RSTAT = "rstat"
RECLAIM = "reclaim"
ORDERED = "ordered"
BACKGROUND = "background"
SHORTAGE = "shortage"
LIMIT = "limit"
FAULT = "fault"
COMPACTION = "compaction"
SOFTIRQ = "softirq"
NETWORK = "network"

#: What a core with stacks of a family does, for display.
WORDS = {
    WALK: "walks memory cgroups",
    STATISTICS: "reads memory statistics",
    RSTAT: "flushes cgroup statistics",
    RECLAIM: "is in direct reclaim",
    ORDERED: "frees memory on request (memory.force_empty, memory.reclaim, a limit)",
    BACKGROUND: "runs kswapd",
    FAULT: "handles page faults",
    COMPACTION: "compacts memory",
    SOFTIRQ: "is in softirq",
    NETWORK: "receives packets",
}
#: Names for a family's functions in evidence.
FUNCTIONS = {
    WALK: "walk functions",
    STATISTICS: "walk functions",
    RSTAT: "flush functions",
    RECLAIM: "reclaim functions",
    ORDERED: "reclaim functions",
    FAULT: "page-fault functions",
    NETWORK: "packet functions",
}
_NAMES = {
    # Goes from one memory cgroup to the next, for whatever reason. Multi-generational reclaim
    # (lru_gen) also allocates a page for each: negligible in a cgroup that has pages, but 37 % over
    # dying ones on 6.12.
    WALK: r"mem_cgroup_(nr_lru_pages|node_nr_lru_pages|iter)|memcg_(numa_stat_show|sum_events)"
    r"|css_next_descendant_p|lru_gen_seq_show|set_mm_walk",
    # Answers a read of a statistics file. On old kernels the walk is inlined here.
    STATISTICS: r"memcg_(numa_)?stat_show|memory_(numa_)?stat_(show|format)|mem_cgroup_stat_show",
    # Reclaim for one cgroup: at its limit, or requested by a write.
    LIMIT: r"try_to_free_mem_cgroup_pages",
    COMPACTION: r"_*(compact_zone|try_to_compact_pages|alloc_pages_direct_compact|kcompactd"
    r"|isolate_(migrate|free)pages)",
    SOFTIRQ: r"_*(do_softirq|handle_softirqs|run_ksoftirqd|net_rx_action|net_tx_action)",
    NETWORK: r"_*(net_[rt]x_action|napi_poll|process_backlog|netif_receive_skb)",
}
_FAMILIES = {family: re.compile(f"^({names})") for family, names in _NAMES.items()}
_UNNAMED = "[unknown]"


@lru_cache(maxsize=1 << 14)
def families(frames: tuple[str, ...]) -> frozenset[str]:
    """Every family a stack belongs to; `frames` are the innermost first."""
    found = {family for family, names in _FAMILIES.items() if any(map(names.match, frames))}
    if found & {SOFTIRQ, NETWORK}:
        return frozenset(found & {SOFTIRQ, NETWORK} | {SOFTIRQ})
    if is_shortage(frames):
        found.add(SHORTAGE)
    if is_rstat(frames):
        found.add(RSTAT)
    elif STATISTICS in found:
        found.add(WALK)
    if is_reclaim(frames):
        ordered = ORDERED if is_ordered_reclaim(frames) else BACKGROUND
        found.add(RECLAIM if is_direct_reclaim(frames) else ordered)
    elif WALK in found:
        found.add(STATISTICS)
    elif is_fault(frames) and COMPACTION not in found:
        found.add(FAULT)
    return frozenset(found)


def is_named(frames: tuple[str, ...]) -> bool:
    """Has any kernel address of the stack a symbol?"""
    return any(frame != _UNNAMED for frame in frames)


#: A family in half of the held core's samples is what the core was doing.
MOST = 1 / 2
#: In a fifth: part of it. Reclaim over dying cgroups walks in 30 to 41 % (measured on 6.18).
MUCH = 1 / 5
#: In fewer than one in twenty: something else held the core.
HARDLY = 1 / 20
#: Samples of two tenths of a second; fewer prove nothing.
FEWEST = 20
#: Readings and stacks are a second apart, and a stall shows one step late.
SLACK_S = 2.0
#: Percent of the held core in system time; below it, softirq held the core.
_MOSTLY_SYSTEM = 50.0
#: Such a kernel thread never reads a file, so it does not read statistics.
_SOFTIRQ_THREAD = "ksoftirqd/"


@dataclass(frozen=True, slots=True)
class Work:
    """Samples of the held core: in all, and by family."""

    samples: int
    by: Counter[str] = field(default_factory=Counter)

    def share(self, *wanted: str) -> float:
        """The share of stacks in the most frequent of these families."""
        return max(self.by[family] for family in wanted) / self.samples

    @property
    def mostly(self) -> str | None:
        """What half of the samples or more do, in words; None if there is no such family."""
        for family, samples in self.by.most_common():
            if family in WORDS and samples >= MOST * self.samples:
                return WORDS[family]
        return None


def core_of(held: Finding) -> str | None:
    """The core that was held longest."""
    return next(iter(held.entities.get("core", ())), None)


def work_of(held: Finding, window: Window) -> Work | None:
    """The core's stacks by family; None if there are too few, or too few with symbols."""
    core = core_of(held)
    if core is None or held.start is None or held.end is None:
        return None
    by: Counter[str] = Counter()
    total = unnamed = 0
    for row in on_cores(window, {core}, (held.start, held.end)):
        total += row.samples
        unnamed += 0 if is_named(row.frames) else row.samples
        for family in families(row.frames):
            by[family] += row.samples
    return Work(total, by) if total >= FEWEST and unnamed * 2 < total else None


def in_softirq(held: Finding) -> bool | None:
    """Was it held in softirq rather than in system time? None if unknown."""
    if any(task.startswith(_SOFTIRQ_THREAD) for task in held.entities.get("task", ())[:1]):
        return True
    for evidence in held.evidence:
        if evidence.what.endswith(BY_KIND) and evidence.number is not None:
            return evidence.number < _MOSTLY_SYSTEM
    return None


def kernel_share(window: Window, core: str, span: tuple[float, float]) -> float | None:
    """Percent of a core spent in the kernel over a span (UNIX); None if not read."""
    series = bridged_series(window)
    if series is None:
        return None
    start, end = (window.mono(value) for value in span)
    shares = series.over(start, end, {int(core)}).get(int(core))
    return None if shares is None else shares.kernel


def dying_share(window: Window) -> float | None:
    """The share of dying ones among memory cgroups, which is what a walk visits."""
    census = latest_count(window)
    if census is None or not census.total or census.dying is None:
        return None
    return census.dying / census.total


def may_walk_dying_cgroups(work: Work, window: Window) -> bool:
    """Is a good part of the work a walk, and are most cgroups dying, or is that unknown?"""
    dead = dying_share(window)
    return work.share(WALK) >= MUCH and (dead is None or dead >= MOST)


def sampled(family: str, share: float) -> Evidence:
    """A family's share of the held core's samples, as evidence."""
    return Evidence(
        f"{FUNCTIONS[family]} in the held core's kernel samples",
        f"{100 * share:.0f} %",
        "< 5 %",
        "% of samples",
        "perf record",
        100 * share,
        "inlining and interrupts-off stretches move samples to a neighbour",
    )


def elsewhere(work: Work) -> str:
    """Evidence against: what the core mostly did instead."""
    words = "most of the held core's samples are elsewhere in the kernel"
    return f"{words}: the core {work.mostly}"


def judge(cause: Finding, effect: Finding, window: Window, family: str) -> Bond | None:
    """The rule shared by all look-alikes of the walk.

    *Proven* if its functions are in half of the held core's kernel samples, *likely* from a fifth
    on, no link below one in twenty: the stacks are from the seconds in which it was held. Without
    stacks, *possible* if both findings name the same task in the same seconds.
    """
    tasks = cause.shares(effect, "task")
    work = work_of(effect, window)
    if work is None:
        if in_softirq(effect) or not tasks or not together(cause, effect, SLACK_S):
            return None
        sentence = f"{tasks[0]} is named by both findings, {when(cause, effect)}"
        sentence += "; kernel stacks would prove it (--stacks)"
        return Bond(Strength.POSSIBLE, sentence, shared=tasks)
    share = work.share(family)
    if share < HARDLY:
        return None
    strength = Strength.POSSIBLE
    if share >= MUCH:
        strength = Strength.PROVEN if share >= MOST else Strength.LIKELY
    against = []
    if share < MOST and work.mostly:
        against.append(elsewhere(work))
    core = core_of(effect)
    return Bond(
        strength,
        f"in {100 * share:.0f} % of its kernel samples, core {core} {WORDS[family]}",
        shared=tasks or ((core,) if core else ()),
        evidence=(sampled(family, share),),
        against=tuple(against),
    )
