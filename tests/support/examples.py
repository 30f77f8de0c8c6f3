"""How many examples hypothesis tries: a fifth in `make test`, all of them in `make test-whole`."""

from __future__ import annotations

import os

#: Set by `make test-whole` and `make check`.
IS_WHOLE = os.environ.get("SEXTON_WHOLE") == "1"
_PART, _LEAST = 5, 5
#: Hypothesis's own default.
USUAL = 100


def examples(number: int) -> int:
    """All of them in a whole run; otherwise a fifth, but at least five."""
    return number if IS_WHOLE else max(number // _PART, min(number, _LEAST))
