"""Values of metrics, before they are written in one of Prometheus' formats.

Names from a node are hostile and endless. A label's value is printable and has at most
`MOST_LABEL` characters; what had to be escaped or cut ends with a digest of the whole name, so that
two names never become one. A family keeps at most as many label sets as it declares, the first
ones: callers add the most important first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

from sexton.export.families import Family
from sexton.model.text import printable, shorten

MOST_LABEL = 120
_DIGEST = 8


class Counts(NamedTuple):
    """A histogram: observations per bucket (not cumulative), the last beyond all bounds; their
    sum."""

    buckets: tuple[float, ...]
    sum: float

    def plus(self, other: Counts) -> Counts:
        """Both together."""
        pairs = zip(self.buckets, other.buckets, strict=True)
        return Counts(tuple(mine + more for mine, more in pairs), self.sum + other.sum)


Labels = tuple[str, ...]
Value = float | Counts


class Samples:
    """Values by family and labels; an unknown value is not added."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Labels, Value]] = {}

    def add(self, family: Family, value: Value | None, *labels: str) -> None:
        """`None` is unknown. A second value for the same labels is ignored."""
        if value is None:
            return
        if len(labels) != len(family.labels):
            raise ValueError(f"{family.name} has the labels {family.labels}")
        mine = self._values.setdefault(family.name, {})
        key = tuple(map(label, labels))
        if key not in mine and len(mine) < family.most:
            mine[key] = value

    def put(self, family: Family, labels: Labels, value: Value) -> None:
        """Set the value of labels as `of` returns them."""
        self._values.setdefault(family.name, {})[labels] = value

    def copy(self) -> Samples:
        """The same values, to be changed apart from these."""
        made = Samples()
        made._values = {name: dict(values) for name, values in self._values.items()}
        return made

    def update(self, other: Samples) -> None:
        """All families of `other` in place of ours; later changes to ours leave `other` alone."""
        self._values.update(other.copy()._values)

    def of(self, family: Family) -> Iterator[tuple[Labels, Value]]:
        """The label sets of a family with their values."""
        yield from self._values.get(family.name, {}).items()

    def value(self, family: Family, *labels: str) -> Value | None:
        """One value; `None` if it is not there."""
        return self._values.get(family.name, {}).get(labels)


def label(text: str) -> str:
    r"""A name from the node as a label's value.

    >>> label("a.service"), label("\x1b[2J"), len(label("x" * 10_000))
    ('a.service', '\\x1b[2J~05704e8a', 120)
    """
    shown = printable(text)
    if shown == text and len(shown) <= MOST_LABEL:
        return shown
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{shorten(shown, MOST_LABEL - _DIGEST - 1)}~{digest}"


def in_buckets(values: Sequence[float], bounds: tuple[float, ...]) -> Counts:
    """Observations as a histogram: a value equal to a bound is within it.

    >>> in_buckets([0.1, 0.5, 0.6, 3.0], (0.5, 1.0))
    Counts(buckets=(2.0, 1.0, 1.0), sum=4.2)
    """
    import numpy as np

    places = np.searchsorted(np.array(bounds), np.array(values, np.float64), side="left")
    found = np.bincount(places, minlength=len(bounds) + 1)
    return Counts(tuple(map(float, found)), float(np.sum(values)))
