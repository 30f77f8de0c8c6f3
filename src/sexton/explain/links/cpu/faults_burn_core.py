"""One page fault after another holds a core in the kernel.

**Rule.** With kernel stacks of the held core in the same seconds: *proven* if half of them or more
serve page faults (and neither reclaim nor compact memory inside one), *likely* from a fifth on, no
link below one in twenty. Without stacks at best *possible*, if both findings name the same task in
the same seconds.

**Evidence against.** Stacks mostly in other functions.
"""

from __future__ import annotations

from sexton.explain.held import FAULT, judge
from sexton.explain.registry import link
from sexton.model.chain import Bond
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="page_fault_storm",
    effect="saturated_core",
    story="handling page faults held a core",
    proof="kernel stacks of the held core (--stacks)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """Faults on the held core."""
    return judge(cause, effect, window, FAULT)
