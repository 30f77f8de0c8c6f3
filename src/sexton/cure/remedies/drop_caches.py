"""Drop the whole node's clean page cache: the blunt tool, and only where it was allowed.

It cannot free what holds most zombies that survive reclaim on their parent: dirty, mapped, tmpfs
and swapped pages. Everything that was cached is read from disk again. So it is left undone where
the steps before it freed nearly all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sexton.cure.ordering import Terms
from sexton.cure.remedy import Hands
from sexton.cure.writer import DROP_CACHES
from sexton.detect.threshold import Threshold
from sexton.errors import SourceError
from sexton.model.plan import Criterion, Step
from sexton.model.text import count, size

RECLAIMS = True
REST = Threshold(
    "rest", 10, "% of the plan's", "so few that are left are not worth the whole node's cache"
)
_LONGEST_S = 60.0


def propose(identity: str, cached_bytes: int | None, dying: int | None) -> Step:
    held = "an unknown amount" if cached_bytes is None else size(cached_bytes)
    return Step(
        id=identity,
        remedy="drop_caches",
        title="drop the node's page cache",
        target="node",
        risk="high",
        risk_why=f"{held} of cache is gone for every process here: disks are read again, jobs slow",
        preconditions=(),
        effect=f"writes 1 to {DROP_CACHES}: clean page cache only, no dentries, no inodes;"
        f" not where less than {REST.value:.0f} % of the zombies are left by then",
        cannot_undo="the evicted cache: it is read again as it is used",
        undo="nothing to undo",
        proof=()
        if dying is None
        else (Criterion("dead memory cgroups", "counted before and after", "<", dying, ""),),
        commands=(f"sync; echo 1 > {DROP_CACHES}",),
        parameters={} if dying is None else {"dying": dying},
    )


def prepare(step: Step, hands: Hands) -> dict[str, Any]:
    return {"nothing": f"{step.id} has nothing to undo", "dying": _dying(hands)}


def carry_out(step: Step, hands: Hands) -> dict[str, Any]:
    before, planned = _dying(hands), step.parameters.get("dying")
    if before is not None and isinstance(planned, int) and before < planned * REST.value / 100:
        return {
            "said": f"not done: {before:,} of {planned:,} zombies are left, which is not worth it",
            "skipped": True,
        }
    done = hands.writer.order(
        DROP_CACHES,
        "1",
        Terms(hands.deadline_s(_LONGEST_S), go_on=lambda: not hands.stop()),
    )
    after = _dying(hands)
    said = f"the cache was dropped in {done.seconds:.1f} s ({done.why})"
    freed = None
    if before is not None and after is not None:
        freed = max(before - after, 0)
        said += f"; freed {count(freed, 'zombie')}, {after:,} are left"
    return {"said": said, "freed": freed, "dying_after": after}


def undo(_before: Mapping[str, Any], _hands: Hands) -> list[str]:
    return []


def _dying(hands: Hands) -> int | None:
    try:
        return int(hands.probes.read("dying"))
    except SourceError:
        return None
