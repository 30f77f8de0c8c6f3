"""Waiting to run: tasks that were ready and had no core.

Time that tasks waited in a core's run queue, as a share of one core's time: 200 % are two tasks
that waited all the time. The mean of all cores, and the core with most. From ``/proc/schedstat``.
"""

from __future__ import annotations

import numpy as np

from sexton.explorer.tiles.build import Metrics, Part, Taken
from sexton.explorer.tiles.lines import Line, Lines, known_mean
from sexton.explorer.tiles.pyramid import Array
from sexton.explorer.tiles.registry import lane
from sexton.model.rows.cpu import RunQueue
from sexton.series.catalogue import RUN_QUEUE_WAIT

_MEAN, _MOST = "mean of all cores", "core with most"


@lane(kind="lines", draws=(RUN_QUEUE_WAIT,), order=90, needs=(RunQueue,))
class Builder(Lines):
    """Builds the mean and the maximum."""

    def __init__(self) -> None:
        super().__init__(Metrics(RUN_QUEUE_WAIT))

    def ahead(self, part: Part) -> None:
        self.sources[0].ahead(part)

    def lines(self, _source: Metrics, taken: Taken) -> dict[Line, Array]:
        waited = taken.values[RUN_QUEUE_WAIT.name]
        return {(_MEAN,): known_mean(waited), (_MOST,): np.fmax.reduce(waited)}

    def shown(self) -> list[tuple[Line, str]]:
        return [((name,), name) for name in (_MEAN, _MOST) if (name,) in self.rows]
