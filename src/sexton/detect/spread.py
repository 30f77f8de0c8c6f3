"""The middle and the spread of a few numbers.

The standard library's `statistics` computes with exact fractions and takes longer to import than
all of this to run, on a node that is already in trouble.

>>> median([3.0, 1.0, 2.0]), median([1.0, 2.0, 3.0, 10.0])
(2.0, 2.5)
>>> variation([10.0, 10.0, 10.0])
0.0
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt


def median(values: Sequence[float]) -> float:
    """The middle one; of an even number the mean of the middle two."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def variation(values: Sequence[float]) -> float:
    """The standard deviation as a share of the mean; infinite where the mean is nothing."""
    mean = fsum(values) / len(values)
    if not mean:
        return float("inf")
    return sqrt(fsum((value - mean) ** 2 for value in values) / len(values)) / mean
