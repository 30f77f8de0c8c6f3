"""Waiting to run: tasks that were ready and had no core.

Time that tasks waited in a core's run queue, as a share of one core's time: 200 % are two tasks
that waited all the time. The mean of all cores, and the core with most. From ``/proc/schedstat``.
"""

from __future__ import annotations

import numpy as np

from sexton.explorer.tiles.build import Metrics, Part, put
from sexton.explorer.tiles.lines import Lines, known_mean, stacked
from sexton.explorer.tiles.registry import lane
from sexton.model.cpu import RunQueue
from sexton.series.catalogue import RUN_QUEUE_WAIT


@lane(kind="lines", unit="% of a core", order=90, needs=(RunQueue,))
class Builder(Lines):
    """Two lines."""

    def __init__(self) -> None:
        super().__init__()
        self._counters = Metrics(RUN_QUEUE_WAIT)

    def ahead(self, part: Part) -> None:
        self._counters.ahead(part)

    def feed(self, part: Part) -> None:
        taken = self._counters.take(part)
        if taken is not None:
            waited = taken.values[RUN_QUEUE_WAIT.name]
            put(self.pyramid, taken, stacked([known_mean(waited), np.fmax.reduce(waited)]))

    def shown(self) -> list[tuple[int, str]]:
        return [(0, "mean of all cores"), (1, "core with most")]
