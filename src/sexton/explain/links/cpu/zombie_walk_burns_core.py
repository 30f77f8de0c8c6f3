"""A periodic reader of memory statistics makes the kernel walk dying cgroups, on one core.

**Rule.** Most of the memory cgroups that are walked must be dying; else live ones make it slow.
Kernel stacks (``--stacks``) decide: *proven* if the walk's functions are in a fifth or more of the
held core's kernel samples in those seconds (a statistics walk spends nearly all its time in them,
reclaim over dying cgroups 30 to 41 %, measured on 6.18), *likely* below that, no link if they are
in fewer than one in twenty. Flushing statistics is no walk: its cost depends on what changed, not
on how many cgroups there are. Without stacks the link is at best *likely*: the task that held the
core is a known reader of cgroup statistics, and one read at the root is measured or estimated at
half a second or more. *Possible*: only one of the two. No link if neither was seen (two symptoms on
one node are no chain), if the core was held in softirq or by a kernel thread, or if only a reader
is known and its read was measured as fast.

**Evidence against.** Stacks mostly in other functions, a walk estimated as fast (newer kernels),
or, without stacks, a task that is no known reader of statistics. Without stacks, a look-alike in
the same seconds, or one that could not be judged, makes the link *possible* (see
`sexton.explain.rivals`).
"""

from __future__ import annotations

from sexton.detect.growth import cost as walk_cost
from sexton.detect.growth import is_bound, latest_count
from sexton.explain.held import (
    HARDLY,
    MOST,
    MUCH,
    WALK,
    WORDS,
    Work,
    core_of,
    dying_share,
    elsewhere,
    in_softirq,
    sampled,
    work_of,
)
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Evidence, Finding
from sexton.model.rows.cgroup import WalkCost
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
#: Kernel threads: none of them reads a file.
_KERNEL = ("ksoftirqd/", "kswapd", "kcompactd", "khugepaged", "kworker/", "migration/", "rcu_")
#: A walk shorter than this cannot hold a core for seconds.
SLOW_WALK_S = 0.5


@link(
    cause="zombie_memcgs",
    effect="saturated_core",
    story="a walk over them held a core",
    proof="kernel stacks of the held core (--stacks)",
)
def join(_cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """A walk over dying cgroups on the held core."""
    dead = dying_share(window)
    if dead is not None and dead < MOST:
        return None
    return judge(effect, window, WALK)


def judge(effect: Finding, window: Window, family: str) -> Bond | None:
    """By stacks if there are any, else by the reader and the cost of the walk."""
    walk = dearest_walk(window)
    work = work_of(effect, window)
    if work is not None:
        return _by_stacks(effect, work, family, walk)
    return _by_reader(effect, walk)


def _by_stacks(effect: Finding, work: Work, family: str, walk: WalkCost | None) -> Bond | None:
    share = work.share(family)
    if share < HARDLY:
        return None
    strength = Strength.PROVEN if share >= MUCH else Strength.LIKELY
    against = []
    if share < MUCH and work.mostly:
        strength = Strength.POSSIBLE
        against.append(elsewhere(work))
    core = core_of(effect)
    return Bond(
        strength,
        f"in {100 * share:.0f} % of its kernel samples, core {core} {WORDS[family]}",
        shared=_readers(effect) or ((core,) if core else ()),
        evidence=(*_timed(walk), sampled(family, share)),
        against=tuple(against),
    )


def _by_reader(effect: Finding, walk: WalkCost | None) -> Bond | None:
    tasks = effect.entities.get("task", ())
    if in_softirq(effect) or (tasks and all(task.startswith(_KERNEL) for task in tasks)):
        return None
    readers = _readers(effect)
    cost = None if walk is None else walk_cost(walk)
    slow = cost is not None and cost >= SLOW_WALK_S
    refuted = walk is not None and walk.root_s is not None and not slow
    if not slow and (not readers or refuted):
        return None
    against = [] if slow or cost is None else [f"a read at the root takes only {seconds(cost)}"]
    if not readers:
        against += [f"{task} is not a known reader of memory statistics" for task in tasks[:1]]
    core = core_of(effect)
    return Bond(
        Strength.LIKELY if readers and slow else Strength.POSSIBLE,
        _sentence(readers, cost),
        shared=readers or ((core,) if core else ()),
        evidence=_timed(walk),
        against=tuple(against),
    )


def dearest_walk(window: Window) -> WalkCost | None:
    """The slowest read whose cost is known; an upper bound proves nothing."""
    census = latest_count(window)
    total = census.total if census else None
    known = [cost for cost in window.latest(WalkCost) or () if not is_bound(cost, total)]
    return max(known, key=walk_cost, default=None)


def _readers(held: Finding) -> tuple[str, ...]:
    return tuple(task for task in held.entities.get("task", ()) if task.startswith(READERS))


def _timed(walk: WalkCost | None) -> tuple[Evidence, ...]:
    if walk is None:
        return ()
    measured = "measured" if walk.root_s is not None else "estimated, read skipped"
    return (
        Evidence(
            f"one read of {walk.file} at the root",
            f"{seconds(walk_cost(walk))} ({measured})",
            "< 10 ms",
            "s",
            f"{walk.path}, {walk.memcgs} memcgs timed",
            walk_cost(walk),
            "the cost does not grow with the number of memory cgroups on this kernel",
        ),
    )


def _sentence(readers: tuple[str, ...], cost: float | None) -> str:
    who = readers[0] if readers else "the task on that core"
    reads = "reads memory statistics" if readers else "may read memory statistics"
    price = f"; one read takes {seconds(cost)}" if cost is not None else ""
    return f"{who} {reads}{price}; kernel stacks would prove it (--stacks)"
