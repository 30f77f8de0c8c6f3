"""Reclaim has to visit every dying cgroup, and finds next to nothing there.

**Rule.** At least half of all memory cgroups are dying. *Proven*: of the reclaim that kernel stacks
show on its cores at that time, a fifth or more goes from one memory cgroup to the next (30 to 41 %
over dying cgroups, measured on 6.18; hardly any if a cgroup frees its own page cache). No link
below that, and none without stacks: no counter shows what reclaim walks.

**Evidence against.** None visible here: the cgroups may have been alive at that time.
"""

from __future__ import annotations

from sexton.detect.stacks import on_cores
from sexton.explain.held import FEWEST, MOST, MUCH, ORDERED, RECLAIM, WALK, dying_share, families
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Evidence, Finding
from sexton.model.window import Window


@link(
    cause="zombie_memcgs",
    effect="direct_reclaim",
    story="every reclaim has to walk them",
    proof="kernel stacks, which show what reclaim walks (--stacks)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The share of reclaim that walks, and the share of dying cgroups in what it walks."""
    dead = dying_share(window)
    cores = effect.entities.get("core", ())
    if dead is None or dead < MOST or effect.start is None or effect.end is None:
        return None
    every = walking = 0
    for row in on_cores(window, cores, (effect.start, effect.end)):
        found = families(row.frames)
        if found & {RECLAIM, ORDERED}:
            every += row.samples
            walking += row.samples if WALK in found else 0
    if every < FEWEST or walking < MUCH * every:
        return None
    share = 100 * walking / every
    return Bond(
        Strength.PROVEN,
        f"{share:.0f} % of reclaim's samples walk memory cgroups, and"
        f" {100 * dead:.0f} % of those are dying",
        shared=cause.shares(effect, "cgroup") or cores[:1],
        evidence=(
            Evidence(
                "walk functions in reclaim's kernel samples",
                f"{share:.0f} %",
                "< 5 %",
                "% of samples",
                "perf record",
                share,
                "inlining and interrupts-off stretches move samples to a neighbour",
            ),
        ),
    )
