"""A flame graph: a tree, and how many samples ended in each of its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I64, Tree

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Flame:
    """`own` is per node; what is below a node is `tree.totals(own)`.

    `core_seconds` is how much of the cores' time was looked at (sampled seconds times cores);
    `None` where the format has no times. `start_ns` and `end_ns` are the chosen range.
    """

    tree: Tree
    own: I64
    event: str
    core_seconds: float | None = None
    start_ns: int | None = None
    end_ns: int | None = None

    @property
    def samples(self) -> int:
        return int(self.own.sum())


@dataclass(frozen=True, slots=True, eq=False)
class FlameDifference:
    """Two flame graphs over one tree: `before` and `after` are own counts, as `Flame.own` is.

    Shares are of each side's samples, subtree totals (see `sexton.profile.differ.shares`).
    `q` is the false-discovery-controlled significance of a node's change, `NaN` where it was not
    tested (too few samples, or no times to tell chance from change).
    """

    tree: Tree
    before: I64
    after: I64
    q: Floats


class FunctionCount(NamedTuple):
    """One function over all stacks: samples in it itself, and in it or anything it called."""

    name: str
    module: str
    kind: int
    own: int
    total: int
