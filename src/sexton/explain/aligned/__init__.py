"""What was different in the seconds before some events: signals ranked, with chance accounted for.

It needs no link that knows the cause: docs/explain-method.md says how it compares, what was
measured of it, and what it cannot do. `prepare` may be done of some signals here and of others
there; `compare` ranks them all.
"""

from sexton.explain.aligned.align import compare, prepare
from sexton.explain.aligned.layout import Plan, lay_out

__all__ = ["Plan", "compare", "lay_out", "prepare"]
