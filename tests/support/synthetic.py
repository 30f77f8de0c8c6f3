"""Recordings that the lab makes up, read back whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lab.synthetic import Generated, Plan, write
from sexton.explain.diagnosis import diagnose
from sexton.model.diagnosis import Diagnosis
from sexton.model.row import Row
from sexton.model.window import Batch, Window
from sexton.store.recording import Recording, Segment
from sexton.store.schema import tables

CHAIN = (
    "crash_looping_unit",
    "zombie_memcgs",
    "slow_memcg_stats",
    "saturated_core",
    "starved_napi",
    "nic_resets",
    "tcp_loss",
)
INCIDENT = ("crash_loop", "zombie_walk", "nic_reset")


def small(*plant: str, **more: Any) -> Plan:
    document: dict[str, Any] = {
        "cores": 4, "queues": 4, "hours": 0.1, "processes": 60, "cgroups": 60, "units": 40,
        "plant": plant,
    }  # fmt: skip
    return Plan(**{**document, **more})


def window_of(segments: Iterable[Segment]) -> Window:
    batches: dict[type[Row], list[Batch[Any]]] = defaultdict(list)
    last = None
    for last in segments:
        for kind in tables().values():
            batches[kind] += last.batches(kind)
    assert last is not None
    return Window(batches, last.states, last.providers)


class Made:
    """A recording, what was told of it, and what comes out of the whole of it."""

    def __init__(self, generated: Generated, recording: Recording) -> None:
        self.told, self.recording = generated, recording
        self.window = window_of(recording.segments)
        self.diagnosis: Diagnosis = diagnose(self.window)


@cache
def made(plan: Plan) -> Made:
    with TemporaryDirectory() as directory:
        generated = write(Path(directory) / "node", plan)
        recording = Recording(generated.directory)
        found = Made(generated, recording)
        assert recording.problems == []
        return found


def incident() -> Made:
    return made(small(*INCIDENT, hours=1 / 6))


def counters(window: Window, kind: type[Row], name: str) -> dict[Any, list[int]]:
    """Every thing's values of one field, in the order of time."""
    found: dict[Any, list[int]] = defaultdict(list)
    for batch in window.batches(kind) or ():
        for row in batch.rows:
            found[tuple(getattr(row, key) for key in kind.entity)].append(getattr(row, name))
    return found
