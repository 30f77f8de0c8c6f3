"""Walking the records of a perf.data's data section, by C where it was compiled, else by numpy.

Both give the same arrays; the C way is some ten times faster. `native.engine` says which is used.
"""

from __future__ import annotations

from collections.abc import Sequence

from sexton.profile.perf import native
from sexton.profile.perf.walk_native import NativeWalker
from sexton.profile.perf.walk_numpy import NumpyWalker
from sexton.profile.perf.walk_plan import (
    BadRecord,
    Columns,
    Layout,
    Since,
    Walker,
    plan_of,
)

__all__ = ["BadRecord", "Columns", "Layout", "Since", "Walker", "walker"]


def walker(layouts: Sequence[Layout], comms: Since, spaces: Since) -> Walker:
    """`comms` names threads by tid, `spaces` gives processes their address space by pid."""
    plan = plan_of(layouts, comms, spaces)
    library = native.library()
    return NumpyWalker(plan) if library is None else NativeWalker(library, plan)
