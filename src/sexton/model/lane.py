"""Lanes: what the explorer draws of a recording over time, and how much is sent at once.

Times are wall seconds since the epoch. A *column* of level L lasts 2**L seconds, from level 0 up
to `TOP`; level -1 are columns of 20 ms, which only stacks have. A *tile* is `COLUMNS` columns, and
tile i of a level begins i tiles after the epoch: tiles do not depend on the recording.

Every lane of numbers has two planes. `mean` is over the seconds of the column that are known,
`peak` its highest second: five seconds that stall must stay visible in a picture of twelve hours.
**Absent is not zero**: it is 255, 65535 or NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

#: The coarsest level: columns of 68 minutes.
TOP = 12
COLUMNS = 256
#: Columns of 20 ms.
FINEST = -1
CELLS_A_SECOND = 50
#: Tiles that may be requested at once.
MOST_TILES = 8

LaneKind = Literal["heat", "lines", "marks", "stacks"]


def column_s(level: int) -> float:
    """How long a column lasts.

    >>> column_s(-1), column_s(0), column_s(4)
    (0.02, 1.0, 16.0)
    """
    return 1 / CELLS_A_SECOND if level == FINEST else float(1 << level)


class Lane(NamedTuple):
    """One lane as the page lists it; `series` are its rows as far as they are known. From `limit`
    on, if it has one, a value is a problem: drawn large enough to be seen."""

    id: str
    title: str
    kind: LaneKind
    unit: str
    about: str
    series: tuple[str, ...]
    levels: tuple[int, int]
    limit: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Strip:
    """Some tiles of one lane beside each other.

    `planes` are "mean" and "peak", each (channels, rows, columns); `names` are the rows'. Heat is
    uint8 with a channel per kind of time, 0 to 200 for 0 to 100 %; lines are float32 and stacks
    uint16, both with one channel.
    """

    lane: str
    level: int
    first: int
    count: int
    names: tuple[str, ...]
    channels: tuple[str, ...]
    planes: dict[str, np.ndarray[Any, Any]]

    @property
    def columns(self) -> int:
        return self.count * COLUMNS

    @property
    def dtype(self) -> str:
        return str(self.planes["mean"].dtype)


class Marked(NamedTuple):
    """An event: `end` is `None` if it has no duration.

    `kind` is a family of the kernel's log ("nic_reset", "soft_lockup", …), of a service's, an
    alarm's kind, "mark", "restart", "note", "boot" or "finding". `severity` is "info", "warning"
    or "critical"; `entity` names what it is about ("core 5", "eth0"), empty if unknown. `lane` is
    the lane that shows it, if any.
    """

    time: float
    end: float | None
    kind: str
    text: str
    severity: str
    entity: str
    lane: str


class Table(NamedTuple):
    """A lane's visible span as a table, for screen readers."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int
