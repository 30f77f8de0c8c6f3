"""Rows of the table: a value, what it is compared with, and the promise."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """A row of the table; `promise` is the highest ratio (or value) promised."""

    what: str
    here: str
    peer: str
    ratio: float | None
    promise: float | None
    promised: str

    @property
    def missed(self) -> bool:
        return self.ratio is not None and self.promise is not None and self.ratio > self.promise

    @property
    def unmeasured(self) -> bool:
        return self.ratio is None and self.promise is not None

    def row(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f}"
        if self.promise is None:
            kept = ""
        elif self.unmeasured:
            kept = " **(not measured)**"
        else:
            kept = " **(missed)**" if self.missed else " (met)"
        cells = (self.what, self.here, self.peer, ratio, self.promised + kept)
        return f"| {' | '.join(map(escaped, cells))} |"


def escaped(cell: str) -> str:
    """Escape text for a table cell."""
    return cell.replace("|", "\\|")


HEAD = """\
| what | measured | compared with | ratio | limit |
|---|---|---|---|---|"""


def against_limit(what: str, value: float | None, limit: float, unit: str, why: str) -> Measured:
    """A value compared with a promised limit; a promise that could not be measured is not kept.

    >>> against_limit("record, CPU", 0.8, 1, "%", "").row()
    '| record, CPU | 0.80 % | limit 1 % | 0.80 | ≤ 1 (met) |'
    >>> against_limit("record, CPU", 2, 1, "%", "").row()
    '| record, CPU | 2.00 % | limit 1 % | 2.00 | ≤ 1 **(missed)** |'
    >>> against_limit("record, CPU", None, 1, "%", "no such verb").row()
    '| record, CPU | not run: no such verb | limit 1 % |  | ≤ 1 **(not measured)** |'
    """
    peer = f"limit {limit:g} {unit}"
    if value is None:
        return Measured(what, f"not run: {why}", peer, None, 1, "≤ 1")
    digits = 2 if value < 10 else 0
    return Measured(what, f"{value:.{digits}f} {unit}", peer, value / limit, 1, "≤ 1")


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, with lowest and highest if there are several values.

    >>> spread([3, 1, 2], 0)
    '2 (1–3)'
    >>> spread([0.125])
    '0.12'
    """
    middle = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def log(line: str) -> None:
    """Print a progress line to stderr, apart from the table."""
    print(line, file=sys.stderr, flush=True)
