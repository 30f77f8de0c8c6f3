"""Thresholds are data, each with its reason beside it."""

from __future__ import annotations

from typing import NamedTuple


class Threshold(NamedTuple):
    """A number that turns a verdict, its unit, and why it is that number and no other."""

    name: str
    value: float
    unit: str
    why: str

    def __float__(self) -> float:
        return self.value
