"""Every core between neighbouring readings: made once, since several detectors go through a night
of them.

A virtual core may get less than all the time, and not every hypervisor says so (`steal_ms`): its
ticks are lost then, and the parts of a step do not add up to it. What such a core did is a share of
what it was given, as mpstat has it: one that was in the kernel whenever it ran did nothing else.
"""

from __future__ import annotations

from sexton.detect.witness import remembered
from sexton.model.cpu import CoreTimes
from sexton.model.window import Window
from sexton.series.steps import Step, steps


@remembered
def core_steps(window: Window) -> tuple[Step[CoreTimes], ...]:
    """In the order of time, and of the readings."""
    batches = window.batches(CoreTimes) or ()
    return tuple(step for _, step in steps(batches, lambda row: row.cpu))


#: Less than this of a step is accounted for only where ticks were lost; less than the other, and
#: too few are left to judge by.
WHOLE, ENOUGH = 0.85, 0.2
_PARTS = (
    "user_ms", "nice_ms", "system_ms", "idle_ms", "iowait_ms", "irq_ms", "softirq_ms", "steal_ms"
)  # fmt: skip


def given_s(step: Step[CoreTimes]) -> float:
    """Of a step's seconds those that its core was given: all, unless ticks were lost."""
    # Idle and iowait are known to step back a little: such a part is left out, not the core.
    spent = sum(step.delta(name) or 0 for name in _PARTS) / 1000
    return spent if ENOUGH * step.seconds <= spent < WHOLE * step.seconds else step.seconds


def share_of(step: Step[CoreTimes], spent_ms: int) -> float:
    """So many milliseconds of a step, in per cent of what its core was given.

    >>> was, half = CoreTimes(0, 0, 0, 0, 0, 0, 0, 0, 0), CoreTimes(0, 0, 0, 500, 0, 0, 0, 0, 0)
    >>> share_of(Step(0.0, 1.0, was, half), 500), share_of(Step(0.0, 0.52, was, half), 500)
    (100.0, 96.15384615384615)
    """
    share = spent_ms / 10 / step.seconds
    # Outside of these it is the same, or nothing to speak of; and a night has millions of steps.
    if ENOUGH * WHOLE <= share / 100 < WHOLE:
        share = spent_ms / 10 / given_s(step)
    return share
