"""Pressure: the share of time in which some task waited for CPU, I/O or memory.

From ``/proc/pressure``, by its own counters and not by its averages, once a second.
"""

from __future__ import annotations

import numpy as np

from sexton.explorer.tiles.build import Counters, Part, Rows, put
from sexton.explorer.tiles.lines import Lines
from sexton.explorer.tiles.registry import lane
from sexton.model.memory import Pressure
from sexton.replay.signal_series import Key

#: Microseconds in a second, as percents.
_PERCENT = 1e-4
_RESOURCES = ("cpu", "io", "memory")


def _is_some(key: Key) -> bool:
    return key[1] == "some" and key[0] in _RESOURCES


@lane(kind="lines", unit="% of time", order=80, needs=(Pressure,))
class Builder(Lines):
    """A line per resource."""

    def __init__(self) -> None:
        super().__init__()
        self._counters = Counters(Pressure, ("resource", "kind"), ("total_us",), wanted=_is_some)
        self._rows = Rows()

    def feed(self, part: Part) -> None:
        taken = self._counters.take(part)
        if taken is not None and "total_us" in taken.values:
            things = [key[0] for key in taken.things]
            # Under load a reading is stamped tens of milliseconds after the kernel counted.
            values = np.minimum(taken.values["total_us"][None] * _PERCENT, np.float32(100))
            put(self.pyramid, taken, self._rows.spread(things, values, self.pyramid.form.absent))

    def shown(self) -> list[tuple[int, str]]:
        rows = {name: row for row, name in enumerate(self._rows)}
        return [(rows[name], name) for name in _RESOURCES if name in rows]
