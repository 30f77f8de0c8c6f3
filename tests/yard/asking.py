"""Our own source, run inside the yard, and its rows brought out."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sexton.model.rows.unit import ServiceManager, Timer, Unit
from sexton.model.window import Batch
from tests.yard.yard import Yard

_CODE = """
import json, time
from dataclasses import asdict
from sexton.host.host import open_host
from sexton.sources.systemd.units import Units

reading = Units(open_host())
for turn in range({times}):
    if turn:
        time.sleep({pause_s})
    rows = [[type(row).__name__, asdict(row)] for row in reading.collect()]
    print(json.dumps([time.monotonic(), time.time(), rows]))
reading.close()
"""

_KINDS = {kind.__name__: kind for kind in (ServiceManager, Unit, Timer)}


@dataclass(frozen=True)
class Asked:
    """Every reading: units as batches, the rest as of the last."""

    units: list[Batch[Unit]]
    timers: dict[str, Timer]
    manager: ServiceManager

    def seen(self, name: str) -> list[Unit]:
        """One unit in every reading that had it."""
        return [unit for batch in self.units for unit in batch.rows if unit.name == name]


def ask(yard: Yard, times: int = 1, pause_s: float = 0.5) -> Asked:
    """`systemd.units`, read `times` times inside the yard."""
    batches: list[Batch[Unit]] = []
    timers: dict[str, Timer] = {}
    manager = None
    for line in yard.python(_CODE.format(times=times, pause_s=pause_s)).splitlines():
        mono_s, wall_s, rows = json.loads(line)
        made = [_KINDS[kind](**fields) for kind, fields in rows]
        units = tuple(row for row in made if isinstance(row, Unit))
        batches.append(Batch(mono_s, wall_s, units))
        timers = {row.name: row for row in made if isinstance(row, Timer)}
        manager = next(row for row in made if isinstance(row, ServiceManager))
    assert manager is not None
    return Asked(batches, timers, manager)
