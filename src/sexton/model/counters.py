"""Differences between two readings of single numbers: the arithmetic of `series`.

It is here, below `series`, because some sources compare two readings to decide what to read next,
and the store sums up the recorder's cost.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
N = TypeVar("N", int, float)


def delta(before: N | None, after: N | None) -> N | None:
    """The step of one counter; `None` if it is absent or went backwards, which is a reset.

    >>> delta(5, 9), delta(9, 5), delta(None, 5)
    (4, None, None)
    """
    if before is None or after is None or after < before:
        return None
    return after - before


def wrapped(before: int, after: int, bits: int) -> int:
    """The step of a counter that wraps around after `bits` bits and is never reset.

    >>> wrapped(2**32 - 1, 4, 32)
    5
    """
    return (after - before) % (1 << bits)


def moved(before: Mapping[K, N], after: Mapping[K, N], born: bool = False) -> dict[K, N]:
    """The steps of counters by name. One that went backwards is left out, and so is a new one,
    unless new ones are `born` at zero.

    >>> moved({"a": 1, "b": 5}, {"a": 3, "b": 2, "c": 7})
    {'a': 2}
    >>> moved({"a": 1, "b": 5}, {"a": 3, "b": 2, "c": 7}, born=True)
    {'a': 2, 'c': 7}
    """
    found: dict[K, N] = {}
    for name, value in after.items():
        earlier = before.get(name)
        if earlier is None:
            if born:
                found[name] = value
        elif value >= earlier:
            found[name] = value - earlier
    return found
