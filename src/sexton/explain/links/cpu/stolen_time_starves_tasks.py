"""The hypervisor takes the cores away, and tasks that are ready wait for what is left.

**Rule.** Both on the same core and in the same seconds, give or take two. *Likely*: half of that
core's time or more was taken while they waited. *Possible*: less. Never proven: nothing shows how
many would have waited with the whole core.

**Speaks against it.** More tasks waited than the stolen time can explain: with what was taken given
back, each core would still be crowded.
"""

from __future__ import annotations

from sexton.detect.detectors.cpu.cpu_pressure import CROWDED
from sexton.detect.detectors.cpu.cpu_steal import GRAVE
from sexton.explain.moments import together
from sexton.explain.registry import link
from sexton.model.chain import Link, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window

_SLACK_S = 2.0


@link(
    cause="cpu_steal",
    effect="cpu_pressure",
    story="tasks waited for what was left of the cores",
    proof="the same load on a machine whose cores are its own",
)
def join(cause: Finding, effect: Finding, _window: Window) -> Link | None:
    """The same cores, in the same seconds."""
    cores = cause.shares(effect, "core")
    if not cores or not together(cause, effect, _SLACK_S):
        return None
    share = max((evidence.number or 0.0 for evidence in cause.evidence), default=0.0)
    waiting = next((evidence.number or 0.0 for evidence in effect.evidence), 0.0)
    against: tuple[str, ...] = ()
    if waiting * (1 - share / 100) >= CROWDED.value:
        against = (f"{waiting:.1f} tasks waited per core: too many for the whole cores as well",)
    return Link(
        "stolen_time_starves_tasks",
        cause.id,
        effect.id,
        Strength.LIKELY if share >= GRAVE.value and not against else Strength.POSSIBLE,
        f"{share:.0f} % of core {cores[0]} was taken while they waited",
        shared=cores,
        against=against,
    )
