"""Drop the clean page cache of the whole node: a blunt tool, only if explicitly allowed.

It cannot free what holds most zombies that survive reclaim on their parent: dirty, mapped, tmpfs
and swapped pages. Everything cached must be read from disk again. So it is skipped if the earlier
steps freed nearly all zombies.
"""

from __future__ import annotations

from typing import Any

from sexton.cure.remedy import StepContext, nothing_to_undo
from sexton.cure.writer import DROP_CACHES, WriteLimits
from sexton.detect.registry import Threshold
from sexton.model.plan import Criterion, Step
from sexton.model.text import count, size
from sexton.series.steps import freed_between

RECLAIMS = True
undo = nothing_to_undo
REST = Threshold(
    "rest", 10, "% of the plan's", "so few are not worth the page cache of the whole node"
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
        risk_why=f"every process loses its page cache ({held}): more disk reads, slower jobs",
        preconditions=(),
        effect=f"writes 1 to {DROP_CACHES}: clean page cache only, no dentries, no inodes;"
        f" skipped if less than {REST.value:.0f} % of the zombies are left by then",
        cannot_undo="evicted cache refills only as it is used",
        undo="nothing to undo",
        proof=()
        if dying is None
        else (Criterion("dying memory cgroups", "counted before and after", "<", dying, ""),),
        commands=(f"sync; echo 1 > {DROP_CACHES}",),
        parameters={} if dying is None else {"dying": dying},
    )


def prepare(step: Step, context: StepContext) -> dict[str, Any]:
    return {"nothing": f"{step.id} has nothing to undo", "dying": context.probes.dying()}


def carry_out(step: Step, context: StepContext) -> dict[str, Any]:
    before, planned = context.probes.dying(), step.parameters.get("dying")
    if before is not None and isinstance(planned, int) and before < planned * REST.value / 100:
        return {
            "said": f"skipped: only {before:,} of {planned:,} zombies are left",
            "skipped": True,
        }
    done = context.writer.write_control(
        DROP_CACHES,
        "1",
        WriteLimits(context.deadline_s(_LONGEST_S), keep_going=lambda: not context.stop()),
    )
    after = context.probes.dying()
    said = f"page cache dropped in {done.seconds:.1f} s ({done.why})"
    freed = freed_between(before, after)
    if freed is not None:
        said += f"; {count(freed, 'zombie')} freed, {after:,} left"
    return {"said": said, "freed": freed, "dying_after": after}
