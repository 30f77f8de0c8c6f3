"""Pressure: the share of time in which some task waited for CPU, I/O or memory.

From ``/proc/pressure``, by its own counters and not by its averages, once a second.
"""

from __future__ import annotations

import numpy as np

from sexton.explorer.tiles.build import Metrics, Part, Rows, put
from sexton.explorer.tiles.lines import Lines
from sexton.explorer.tiles.registry import lane
from sexton.model.memory import Pressure
from sexton.model.window import Key
from sexton.series.catalogue import PRESSURE

_RESOURCES = ("cpu", "io", "memory")


def _is_some(key: Key) -> bool:
    return key[1] == "some" and key[0] in _RESOURCES


@lane(kind="lines", unit="% of time", order=80, needs=(Pressure,))
class Builder(Lines):
    """A line per resource."""

    def __init__(self) -> None:
        super().__init__()
        self._counters = Metrics(PRESSURE._replace(wanted=_is_some))
        self._rows = Rows()

    def feed(self, part: Part) -> None:
        taken = self._counters.take(part)
        if taken is not None:
            things = [key[0] for key in taken.things]
            # Under load a reading is stamped tens of milliseconds after the kernel counted.
            values = np.minimum(taken.values[PRESSURE.name][None], np.float32(100))
            put(self.pyramid, taken, self._rows.spread(things, values, self.pyramid.form.absent))

    def shown(self) -> list[tuple[int, str]]:
        rows = {name: row for row, name in enumerate(self._rows)}
        return [(rows[name], name) for name in _RESOURCES if name in rows]
