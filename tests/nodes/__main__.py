"""`python -m tests.nodes`: write every expectation anew, for a person to review with `git diff`."""

from __future__ import annotations

import sys

from tests.nodes.expectation import ARCHIVES, as_text, diagnosed, expectation_of, expected


def main() -> int:
    for archive in ARCHIVES:
        place = expectation_of(archive)
        before = place.read_text("utf-8") if place.exists() else ""
        after = as_text(expected(diagnosed(archive)))
        place.write_text(after, "utf-8")
        print(f"{'same   ' if after == before else 'CHANGED'} {place.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
