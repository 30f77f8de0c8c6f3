"""The hypervisor takes CPU time away, and runnable tasks wait for what is left.

**Rule.** Both on the same core and in the same seconds, give or take two. *Likely*: half of that
core's time or more was stolen while they waited. *Possible*: less. Never proven: nothing shows how
many would have waited with the whole core.

**Evidence against.** More tasks waited than stolen time can explain: without steal, each core would
still be crowded.
"""

from __future__ import annotations

from sexton.detect.detectors.cpu.cpu_pressure import CROWDED
from sexton.detect.detectors.cpu.cpu_steal import GRAVE
from sexton.explain.order import READ_S, together
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="cpu_steal",
    effect="cpu_pressure",
    story="tasks waited for what was left of the cores",
    proof="the same load on a machine with dedicated cores",
)
def join(cause: Finding, effect: Finding, _window: Window) -> Bond | None:
    """The same cores, in the same seconds."""
    cores = cause.shares(effect, "core")
    if not cores or not together(cause, effect, READ_S):
        return None
    share = max((evidence.number or 0.0 for evidence in cause.evidence), default=0.0)
    waiting = next((evidence.number or 0.0 for evidence in effect.evidence), 0.0)
    against: tuple[str, ...] = ()
    if waiting * (1 - share / 100) >= CROWDED.value:
        against = (f"{waiting:.1f} tasks waited per core: too many for the whole cores as well",)
    return Bond(
        Strength.LIKELY if share >= GRAVE.value and not against else Strength.POSSIBLE,
        f"{share:.0f} % of core {cores[0]} was taken while they waited",
        shared=cores,
        against=against,
    )
