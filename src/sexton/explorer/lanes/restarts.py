"""Unit restarts: services that the service manager starts again and again.

Restarts a minute of the units that restarted most, by systemd's own counter.
"""

from __future__ import annotations

import numpy as np

from sexton.explorer.tiles.build import Metrics, Part, Rows, put
from sexton.explorer.tiles.lines import Lines
from sexton.explorer.tiles.registry import lane
from sexton.model.text import printable
from sexton.model.unit import Unit
from sexton.series.catalogue import UNIT_RESTARTS

#: Units that are shown.
MOST = 6
#: Units that are counted: no node has more that restart.
_MOST_KEPT = 500
#: Row 0 is no unit: it says when units were looked at.
_LOOKED = ""


@lane(kind="lines", unit="restarts a minute", order=60, needs=(Unit,))
class Builder(Lines):
    """A line per unit that restarted at all."""

    def __init__(self) -> None:
        super().__init__(fill=0.0)
        self._counters = Metrics(UNIT_RESTARTS)
        self._rows = Rows()
        self._rows.of([_LOOKED])
        self._restarts: dict[str, float] = {}

    def feed(self, part: Part) -> None:
        taken = self._counters.take(part)
        if taken is None:
            return
        rates = taken.values[UNIT_RESTARTS.name]  # a minute
        total = np.nansum(rates / 60 * (taken.end - taken.start).astype(np.float32), axis=1)
        for at in np.flatnonzero(total > 0).tolist():
            name = str(taken.things[at][0])
            if name in self._restarts or len(self._restarts) < _MOST_KEPT:
                self._restarts[name] = self._restarts.get(name, 0.0) + float(total[at])
        kept = [at for at, key in enumerate(taken.things) if str(key[0]) in self._restarts]
        looked = np.where(np.isnan(rates).all(axis=0), np.float32(np.nan), np.float32(0))
        things = [_LOOKED, *(str(taken.things[at][0]) for at in kept)]
        values = np.concatenate([looked[None], rates[kept]])[None]
        put(self.pyramid, taken, self._rows.spread(things, values, np.nan))

    def shown(self) -> list[tuple[int, str]]:
        rows = {name: row for row, name in enumerate(self._rows)}
        most = sorted(self._restarts, key=lambda name: (-self._restarts[name], name))[:MOST]
        return [(rows[name], printable(name)) for name in most]
