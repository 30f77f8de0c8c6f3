"""Pressure: the share of time in which some task waited for CPU, I/O or memory.

From the counters in ``/proc/pressure``, not its averages, once a second.
"""

from __future__ import annotations

from sexton.explorer.tiles.build import Metrics, Taken
from sexton.explorer.tiles.lines import Line, Lines
from sexton.explorer.tiles.pyramid import Array
from sexton.explorer.tiles.registry import lane
from sexton.model.rows.memory import Pressure
from sexton.model.window import Key
from sexton.series.catalogue import PRESSURE

_RESOURCES = ("cpu", "io", "memory")


def _is_some(key: Key) -> bool:
    return key[1] == "some" and key[0] in _RESOURCES


@lane(kind="lines", draws=(PRESSURE,), order=80, needs=(Pressure,))
class Builder(Lines):
    """Builds a line per resource."""

    def __init__(self) -> None:
        super().__init__(Metrics(PRESSURE._replace(wanted=_is_some)))

    def lines(self, _source: Metrics, taken: Taken) -> dict[Line, Array]:
        values = taken.values[PRESSURE.name]
        return {(str(key[0]),): value for key, value in zip(taken.things, values, strict=True)}

    def shown(self) -> list[tuple[Line, str]]:
        return [((name,), name) for name in _RESOURCES if (name,) in self.rows]
