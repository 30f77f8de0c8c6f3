"""What was different in the seconds before some events: signals ranked, with chance accounted for.

`align` needs no link that knows the cause: docs/explain-method.md says how it compares, what was
measured of it, and what it cannot do. Its two halves are `prepare`, which may be done of some
signals here and of others there, and `compare`.
"""

from sexton.explain.aligned.align import align, compare, prepare
from sexton.explain.aligned.layout import LEAST_EVENTS, Layout, Plan, Stratum, lay_out
from sexton.explain.aligned.measure import Measured

__all__ = [
    "LEAST_EVENTS",
    "Layout",
    "Measured",
    "Plan",
    "Stratum",
    "align",
    "compare",
    "lay_out",
    "prepare",
]
