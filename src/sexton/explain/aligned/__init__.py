"""What was different in the seconds before some events: signals ranked, with chance accounted for.

`align` needs no link that knows the cause: docs/explain-method.md says how it compares, what was
measured of it, and what it cannot do.
"""

from sexton.explain.aligned.align import align
from sexton.explain.aligned.layout import Layout, Stratum, lay_out
from sexton.explain.aligned.plan import LEAST_EVENTS, Plan

__all__ = ["LEAST_EVENTS", "Layout", "Plan", "Stratum", "align", "lay_out"]
