"""How far kernel counters moved over a window."""

from __future__ import annotations

from sexton.model.row import Row
from sexton.model.window import Key, Window
from sexton.series.rates import totals


def moved(window: Window, kind: type[Row], *fields: str) -> dict[Key, dict[str, float]] | None:
    """By thing, how far each of these counters moved; `None` where they were not read twice."""
    edges = window.bounds_of(kind)
    if edges is None or edges[0] == edges[1]:
        return None
    return window.keep(("moved", kind, fields), lambda: totals(window.columns(kind, fields)))
