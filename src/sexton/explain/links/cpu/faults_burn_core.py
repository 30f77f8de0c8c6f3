"""Page faults, one after the other, hold a core in the kernel.

**Rule.** With kernel stacks of the held core, in the very seconds: *proven* where half of them or
more serve page faults (and neither reclaim nor compact memory inside one), *likely* from a fifth
on, no link below one in twenty. Without stacks at best *possible*, where both findings name the
same task in the same seconds.

**Speaks against it.** Stacks that are mostly elsewhere.
"""

from __future__ import annotations

from sexton.explain.held import FAULT, judge
from sexton.explain.registry import link
from sexton.model.chain import Link
from sexton.model.finding import Finding
from sexton.model.window import Window


@link(
    cause="page_fault_storm",
    effect="saturated_core",
    story="serving page faults held a core",
    proof="kernel stacks of the held core (--stacks)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Link | None:
    """Faults on the held core."""
    return judge("faults_burn_core", (cause, effect), window, FAULT)
