"""Heat: how busy each core was in each second, and within it in each fiftieth.

Small enough to be kept for every core and drawn for twelve hours at once, where stacks are read
only for the seconds somebody looks at. Idle samples count as `samples`, not as `busy`, so that a
core that slept and a core that was not sampled look different: *absent is not zero*.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sexton.model.profile import I32, I64

#: 50 rows of 20 ms, FlameScope's measure.
CELLS = 50
CELL_NS = 1_000_000_000 // CELLS


@dataclass(frozen=True, slots=True, eq=False)
class Heat:
    """A row per core and second in which that core was sampled, by (second, cpu).

    `second` is the sample's time in whole seconds of the capture's clock; `cpu` is -1 where the
    capture does not tell; `kernel` are busy samples whose innermost frame is the kernel's; `cells`
    are busy samples per 20 ms, shape (rows, 50).
    """

    second: I64
    cpu: I32
    samples: I32
    busy: I32
    kernel: I32
    cells: npt.NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.second)


def no_heat() -> Heat:
    """A heat of nothing."""
    none = np.zeros(0, np.int32)
    return Heat(np.zeros(0, np.int64), none, none, none, none, np.zeros((0, CELLS), np.uint16))
