"""Windows for tests: out of a fixture file, or made in place.

A fixture is one JSON object::

    {"about": "one line: what happened on this node",
     "defaults": {"CoreTimes": {"nice_ms": 0, "steal_ms": 0}},
     "batches": [{"mono_s": 0, "wall_s": 1700000000, "rows": {"CoreTimes": [{"cpu": 0}]}}],
     "states": [{"id": "kmsg.log", "path": "/dev/kmsg", "state": "denied", "rows": ["KernelLog"]}],
     "expect": {"verdict": "present", "severity": "critical",
                "summary_has": ["core 5"], "summary_lacks": [], "entities": {"core": ["5"]},
                "missing_has": [], "evidence_has": []}}

`defaults` fills the fields a row does not name. An empty list under `rows` is a source that was
read and had nothing to say; a row type never named was never read. A state's `rows` names what it
would have given, where the registry does not know the source.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sexton.model
from sexton.model.row import Row
from sexton.model.window import Batch, SourceState, Window
from sexton.sources.registry import all_sources

#: The UNIX time of monotonic second 0 in windows made here.
EPOCH = 1_700_000_000.0


@cache
def row_types() -> Mapping[str, type[Row]]:
    """Every row class there is, by name."""
    for module in pkgutil.walk_packages(sexton.model.__path__, "sexton.model."):
        importlib.import_module(module.name)
    # A slotted dataclass is made twice, its module holds the one in use, and tests make more.
    return {
        kind.__name__: getattr(importlib.import_module(kind.__module__), kind.__name__)
        for kind in Row.__subclasses__()
        if kind.__module__.startswith("sexton.")
    }


@cache
def providers() -> Mapping[type[Row], str]:
    """Which source gives a row, as the sampler would tell the window."""
    return {kind: source.id for source in all_sources() for kind in source.rows}


def load_window(path: Path) -> tuple[Window, dict[str, Any]]:
    """A fixture as a window, and what is expected of it."""
    return read_window(json.loads(path.read_text(encoding="utf-8")))


def read_window(data: Mapping[str, Any]) -> tuple[Window, dict[str, Any]]:
    """The same from an object already read."""
    types = row_types()
    defaults = data.get("defaults", {})
    batches: dict[type[Row], list[Batch[Any]]] = defaultdict(list)
    for batch in data["batches"]:
        for name, rows in batch["rows"].items():
            kind = types[name]
            made = tuple(kind(**_fields(defaults.get(name, {}) | row)) for row in rows)
            batches[kind].append(Batch(batch["mono_s"], batch["wall_s"], made))
    gives: dict[type[Row], str] = {}
    states = []
    for state in data.get("states", []):
        told = dict(state)
        gives |= {types[name]: told["id"] for name in told.pop("rows", [])}
        states.append(SourceState(**told))
    return Window(batches, states, dict(providers()) | gives), data["expect"]


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def make_window(
    readings: Iterable[tuple[float, Sequence[Row]]],
    empty: Sequence[type[Row]] = (),
    states: Iterable[SourceState] = (),
) -> Window:
    """Readings at monotonic seconds, rows of any types together; `empty` were read in vain."""
    batches: dict[type[Row], list[Batch[Any]]] = defaultdict(list)
    for mono_s, rows in readings:
        sorted_rows: dict[type[Row], list[Row]] = {kind: [] for kind in empty}
        for row in rows:
            sorted_rows.setdefault(type(row), []).append(row)
        for kind, items in sorted_rows.items():
            batches[kind].append(Batch(mono_s, EPOCH + mono_s, tuple(items)))
    return Window(batches, states, providers())
