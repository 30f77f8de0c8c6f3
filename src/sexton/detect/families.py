"""Families of kernel functions: what a stack that contains one of them is doing.

Inlining and versions differ, so a family is matched and never one name; a stack is its frames, the
innermost first.

>>> is_direct_reclaim(("shrink_lruvec", "shrink_node", "do_try_to_free_pages"))
True
>>> is_direct_reclaim(("shrink_lruvec", "shrink_node", "balance_pgdat", "kswapd"))
False
>>> is_ordered_reclaim(("shrink_lruvec", "try_to_free_mem_cgroup_pages", "mem_cgroup_force_empty"))
True
"""

from __future__ import annotations

import re
from functools import lru_cache

#: Freeing memory, for whatever reason.
RECLAIM = re.compile(
    r"^(do_)?try_to_free_(mem_cgroup_)?pages|^__alloc_pages_direct_reclaim|^__perform_reclaim"
    r"|^(__)?node_reclaim|^mem_cgroup_force_empty|^user_proactive_reclaim"
    r"|^shrink_(node|lruvec|one|many|slab|zones|inactive_list|active_list|folio_list|page_list)"
)
#: Reclaim by kswapd, and dropping caches.
KSWAPD = re.compile(r"^(kswapd|balance_pgdat|kswapd_shrink_node|drop_slab|drop_caches)")
#: Reclaim on request, by writing to a file (`memory.force_empty`, `memory.reclaim`, a limit) or by
#: madvise(2): no task waits for a page there, and memory pressure stays at 0.
ORDERED = re.compile(
    r"^mem_cgroup_force_empty|^(memory|user_proactive)_reclaim(\.|$)|^memory_(high|max)_write"
    r"|^mem_cgroup_(resize_max|resize_limit|write)(\.|$)|^reclaim_store|^lru_gen_seq_write"
    r"|^madvise_(cold_or_)?pageout"
)
#: Reclaim for the whole machine: no zone had a free page left, or kswapd saw that coming.
SHORTAGE = re.compile(r"^_*(alloc_pages_direct_reclaim|try_to_free_pages|balance_pgdat)")
#: Entry points of page faults, by architecture and kernel, and the functions they all call.
FAULT = re.compile(
    r"^(asm_)?exc_page_fault|^(do_)?page_fault$|^do_user_addr_fault|^__do_page_fault"
    r"|^do_(mem_abort|translation_fault|page_fault)|^(__)?handle_mm_fault|^do_anonymous_page"
)
#: Flushing cgroup statistics; `css_rstat_*` since 6.15.
RSTAT = re.compile(
    r"^(__)?(cgroup|css)_rstat_(flush|lock|unlock)|^(do|__mem_cgroup|mem_cgroup)_flush_stats"
    r"|^flush_memcg_stats|^mem_cgroup_css_rstat_flush|^(cgroup|css)_base_stat_flush"
    r"|^(cgroup|css)_rstat_(push_children|updated_list)"
)
#: Innermost frames of a core that spins on a lock.
SPIN = re.compile(
    r"^((__pv_|native_)?queued_spin_lock_slowpath|_raw_spin_lock\w*|osq_lock"
    r"|mutex_spin_on_owner|rwsem_spin_on_owner|queued_(read|write)_lock_slowpath)"
)
_MOST = 1 << 14


@lru_cache(_MOST)
def is_reclaim(frames: tuple[str, ...]) -> bool:
    """Memory is being freed."""
    return any(map(RECLAIM.match, frames))


@lru_cache(_MOST)
def is_direct_reclaim(frames: tuple[str, ...]) -> bool:
    """A task frees memory itself before its allocation continues."""
    return is_reclaim(frames) and not any(
        KSWAPD.match(frame) or ORDERED.match(frame) for frame in frames
    )


@lru_cache(_MOST)
def is_ordered_reclaim(frames: tuple[str, ...]) -> bool:
    """A task frees memory on request."""
    return is_reclaim(frames) and any(map(ORDERED.match, frames))


@lru_cache(_MOST)
def is_shortage(frames: tuple[str, ...]) -> bool:
    """Memory is freed because the whole machine is short of it."""
    return any(map(SHORTAGE.match, frames))


@lru_cache(_MOST)
def is_fault(frames: tuple[str, ...]) -> bool:
    """A page fault is handled, without reclaim inside it."""
    return any(map(FAULT.match, frames)) and not is_reclaim(frames)


@lru_cache(_MOST)
def is_rstat(frames: tuple[str, ...]) -> bool:
    """Cgroup statistics are flushed, or the task waits for that."""
    return any(map(RSTAT.match, frames))


def is_spinning(frames: tuple[str, ...]) -> bool:
    """The core spins on a lock."""
    return bool(frames) and SPIN.match(frames[0]) is not None
