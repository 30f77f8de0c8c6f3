"""What a held core's stack is about: which families of kernel functions it belongs to.

The families that detectors ask for too are in `sexton.detect.families`; here is what tells rivals
apart:

- softirq work broke into whatever ran below it, so that the task is innocent of it;
- a page fault that ends in reclaim is reclaim, and reclaim that walks cgroups is a walk too;
- reclaim that somebody ordered is no task's that had to wait for a page;
- a walk without reclaim is one for statistics, also where the reader's own frame is inlined;
- statistics that are flushed (`rstat`) cost by what changed, a walk costs by what is there.

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
from functools import lru_cache

from sexton.detect.families import (
    is_direct_reclaim,
    is_fault,
    is_ordered_reclaim,
    is_reclaim,
    is_rstat,
    is_shortage,
)

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

#: For a person: what a core does whose stacks are of a family.
WORDS = {
    WALK: "walks memory cgroups",
    STATISTICS: "reads memory statistics",
    RSTAT: "flushes cgroup statistics",
    RECLAIM: "frees memory for itself (direct reclaim)",
    ORDERED: "frees memory because it was told to (memory.force_empty, memory.reclaim, a limit)",
    BACKGROUND: "frees memory for others (kswapd)",
    FAULT: "serves page faults",
    COMPACTION: "compacts memory",
    SOFTIRQ: "is in softirq",
    NETWORK: "takes in packets",
}
#: What their functions are called where samples are counted.
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
    # Goes from one memory cgroup to the next, whoever asked for it. Multi-generational reclaim
    # (lru_gen) also gets itself a page of notes for each: in a cgroup that has pages that is
    # nothing beside them, over the dead it was 37 % on 6.12.
    WALK: r"mem_cgroup_(nr_lru_pages|node_nr_lru_pages|iter)|memcg_(numa_stat_show|sum_events)"
    r"|css_next_descendant_p|lru_gen_seq_show|set_mm_walk",
    # Answers a read of a statistics file. On old kernels the walk is inlined in them.
    STATISTICS: r"memcg_(numa_)?stat_show|memory_(numa_)?stat_(show|format)|mem_cgroup_stat_show",
    # Reclaim for one cgroup: it is at its limit, or somebody ordered it.
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
    """Could the kernel's addresses be named at all?"""
    return any(frame != _UNNAMED for frame in frames)
