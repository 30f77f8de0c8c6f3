"""Unit restarts: services that the service manager restarts.

Restarts a minute of the units that restarted most, by systemd's own counter.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sexton.explorer.tiles.build import Metrics, Taken
from sexton.explorer.tiles.lines import Line, Lines
from sexton.explorer.tiles.pyramid import Array
from sexton.explorer.tiles.registry import lane
from sexton.model.rows.unit import Unit
from sexton.model.text import printable
from sexton.series.catalogue import UNIT_RESTARTS

#: Units that are shown.
MOST = 6
#: Units that are counted; no node has more that restart.
_MOST_KEPT = 500
#: The first row is no unit: it is 0 whenever units were read.
_READ = ("",)


@lane(kind="lines", draws=(UNIT_RESTARTS,), order=60, needs=(Unit,))
class Builder(Lines):
    """Builds a line per unit that restarted at all."""

    def __init__(self) -> None:
        super().__init__(Metrics(UNIT_RESTARTS), fill=0.0)
        self.rows.of([_READ])
        self._restarts: dict[Line, float] = {}

    def put(self, taken: Taken, lines: Mapping[Line, Array]) -> None:
        seconds = (taken.end - taken.start).astype(np.float32)
        kept: dict[Line, Array] = {}
        for name, rates in lines.items():
            restarts = 0.0 if name == _READ else float(np.nansum(rates / 60 * seconds))
            if restarts > 0 and (name in self._restarts or len(self._restarts) < _MOST_KEPT):
                self._restarts[name] = self._restarts.get(name, 0.0) + restarts
            if name == _READ or name in self._restarts:
                kept[name] = rates
        super().put(taken, kept)

    def lines(self, _source: Metrics, taken: Taken) -> dict[Line, Array]:
        rates = taken.values[UNIT_RESTARTS.name]  # a minute
        read = np.where(np.isnan(rates).all(axis=0), np.float32(np.nan), np.float32(0))
        units: dict[Line, Array] = {
            (str(key[0]),): rate for key, rate in zip(taken.things, rates, strict=True)
        }
        return {_READ: read, **units}

    def shown(self) -> list[tuple[Line, str]]:
        most = sorted(self._restarts, key=lambda name: (-self._restarts[name], name))[:MOST]
        return [(name, printable(name[0])) for name in most]
