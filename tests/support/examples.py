"""How many examples hypothesis tries: all in `make check`, a part of them in `make check-fast`."""

from __future__ import annotations

import os

#: Set by `make check-fast`.
IS_DAILY = os.environ.get("SEXTON_DAILY") == "1"
_PART, _LEAST = 5, 5
#: Hypothesis's own default.
USUAL = 100


def examples(number: int) -> int:
    """So many; of a daily run a fifth, and no fewer than five where there are as many."""
    return max(number // _PART, min(number, _LEAST)) if IS_DAILY else number
