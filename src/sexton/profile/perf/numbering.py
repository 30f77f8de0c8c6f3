"""Distinct pairs of numbers, for walk_numpy.py: a hash table whose every step is one of numpy's."""

from __future__ import annotations

import numpy as np

from sexton.model.profile import I32, I64
from sexton.profile.perf.walk_plan import U64

#: Any odd numbers that look like chance.
_A, _B = np.uint64(0xD6E8FEB86659FD93), np.uint64(0x9E3779B97F4A7C15)


class Numbers:
    """Pairs, numbered in the order in which they first appear.

    >>> pairs = Numbers()
    >>> number, new = pairs.place(np.uint64([7, 5, 7]), np.uint64([0, 0, 0]))
    >>> number.tolist(), new.tolist()
    ([0, 1, 0], [0, 1])
    """

    def __init__(self) -> None:
        self._a, self._b = np.zeros(0, np.uint64), np.zeros(0, np.uint64)
        #: Numbers by bucket, and where each bucket starts.
        self._numbers, self._starts = np.zeros(0, np.int32), np.zeros(3, np.int32)

    def place(self, a: U64, b: U64) -> tuple[I32, I64]:
        """Each pair's number; and where those first stand that were not known before."""
        number = self._find(a, b)
        new = np.flatnonzero(number < 0)
        if not len(new):
            return number, new
        new_a, new_b = a[new], b[new]
        order = np.lexsort((new_b, new_a))
        starts = np.ones(len(new), np.bool_)
        starts[1:] = np.diff(new_a[order]).astype(np.bool_) | np.diff(new_b[order]).astype(np.bool_)
        # The sort is stable: the first of a group is the first to appear.
        first = order[starts]
        appearing = np.argsort(first)
        rank = np.empty(len(first), np.int32)
        rank[appearing] = np.arange(len(first), dtype=np.int32)
        number[new[order]] = len(self._a) + rank[np.cumsum(starts) - 1]
        first = first[appearing]
        self._learn(new_a[first], new_b[first])
        return number, new[first]

    def pairs(self) -> tuple[U64, U64]:
        return self._a, self._b

    def _find(self, a: U64, b: U64) -> I32:
        number = np.full(len(a), -1, np.int32)
        bucket = self._buckets(a, b)
        at, end = self._starts[bucket], self._starts[bucket + 1]
        rows = np.flatnonzero(at < end)
        at, end = at[rows], end[rows]
        while len(rows):
            maybe = self._numbers[at]
            found = (self._a[maybe] == a[rows]) & (self._b[maybe] == b[rows])
            number[rows[found]] = maybe[found]
            going = ~found & (at + 1 < end)
            rows, at, end = rows[going], at[going] + 1, end[going]
        return number

    def _learn(self, a: U64, b: U64) -> None:
        self._a, self._b = np.concatenate([self._a, a]), np.concatenate([self._b, b])
        # One to two buckets a pair; their number is a power of two.
        self._starts = np.zeros((1 << len(self._a).bit_length()) + 1, np.int32)
        bucket = self._buckets(self._a, self._b)
        np.cumsum(np.bincount(bucket, minlength=len(self._starts) - 1), out=self._starts[1:])
        self._numbers = np.argsort(bucket, kind="stable").astype(np.int32)

    def _buckets(self, a: U64, b: U64) -> I64:
        mixed = (a ^ b * _B) * _A
        return (mixed >> np.uint64(65 - len(self._starts).bit_length())).astype(np.int64)
