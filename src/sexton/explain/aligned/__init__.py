"""What was different in the seconds before some events: signals ranked, with tests against chance.

It needs no link that knows the cause: docs/explain-method.md describes the comparison, how it was
measured, and what it cannot do. `prepare` may run on some signals at a time; `compare` ranks them
all.
"""

from sexton.explain.aligned.align import compare, prepare
from sexton.explain.aligned.layout import Plan, lay_out

__all__ = ["Plan", "compare", "lay_out", "prepare"]
