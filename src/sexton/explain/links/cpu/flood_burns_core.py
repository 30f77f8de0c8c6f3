"""Packets arrive faster than one core can process them, and softirq holds it.

**Rule.** The held core must be a flooded one. Kernel stacks of the held seconds decide: *proven* if
half of them or more receive packets, *likely* from a fifth on, no link below one in twenty. Without
stacks, both must be in the same seconds, or the core must have received a flood while it was held;
then its CPU times decide: *proven* if most of the held time was softirq, no link if it was system
time, which a task spends; *possible* if unknown.

**Evidence against.** A core that neither dropped a packet nor cut a poll short: busy, not flooded.
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.detect.detectors.network.softirq_flood import PACKETS
from sexton.detect.waits import LOSSES
from sexton.explain.held import NETWORK, SLACK_S, core_of, in_softirq, judge, work_of
from sexton.explain.order import together
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.rows.cpu import SoftnetCpu
from sexton.model.window import Window
from sexton.series.steps import Step, span_around


@link(
    cause="softirq_flood",
    effect="saturated_core",
    story="receiving packets held a core in softirq",
    proof="kernel stacks of the held core (--stacks)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The flood on the held core."""
    core = core_of(effect)
    if core is None or core not in cause.entities.get("core", ()):
        return None
    against = not_overloaded((core,), effect, window)
    if work_of(effect, window) is not None:
        found = judge(cause, effect, window, NETWORK)
        return None if found is None else found._replace(against=(*found.against, *against))
    softirq = in_softirq(effect)
    meanwhile = together(cause, effect, SLACK_S) or _was_flooded(core, effect, window)
    if softirq is False or not meanwhile:
        return None
    how = "most of that time was softirq" if softirq else "whether in softirq is unknown"
    return Bond(
        Strength.PROVEN if softirq else Strength.POSSIBLE,
        f"core {core} is the flooded one; {how}",
        shared=(core,),
        against=against,
    )


def _backlogs(cores: Sequence[str], during: Finding, window: Window) -> list[Step[SoftnetCpu]]:
    if during.start is None:
        return []
    span = (during.start, during.end or during.start)
    steps = span_around(window, SoftnetCpu, lambda row: row.cpu, span).values()
    return [step for step in steps if str(step.after.cpu) in cores]


def _was_flooded(core: str, held: Finding, window: Window) -> bool:
    """Floods recur: the worst one need not be the one that held the core longest."""
    steps = _backlogs((core,), held, window)
    rates = [step.rate("processed") for step in steps]
    return any(rate is not None and rate >= PACKETS.value for rate in rates)


def not_overloaded(cores: Sequence[str], during: Finding, window: Window) -> tuple[str, ...]:
    """Evidence against a flood: the backlogs of these cores were read and did not suffer."""
    steps = _backlogs(cores, during, window)
    suffered = [step.delta(name) for step in steps for name in LOSSES]
    if not steps or any(number != 0 for number in suffered):  # an unknown one is no evidence
        return ()
    return (f"core {', '.join(cores)} dropped no packet and cut no poll short",)
