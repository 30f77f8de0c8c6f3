"""How far kernel counters moved over a window."""

from __future__ import annotations

from sexton.model.row import Row
from sexton.model.window import Key, Window
from sexton.series.rates import totals


def moved(
    window: Window, kind: type[Row], field: str, only: Key | None = None
) -> dict[Key, float] | None:
    """How far each counter moved; `None` where it was not read twice."""
    edges = window.bounds_of(kind)
    if edges is None or edges[0] == edges[1]:
        return None
    read = window.columns(kind, (field,), None if only is None else only.__eq__)
    return {thing: each[field] for thing, each in totals(read).items() if field in each}


def counted(window: Window, kind: type[Row], field: str, *key: str) -> float | None:
    """How far one counter moved."""
    return (moved(window, kind, field, key) or {}).get(key)
