"""A recording that grows now, as a recorder of this boot would write it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.cpu import CoreTimes
from sexton.model.window import Batch, SourceState
from sexton.store.journal import OpenSegment
from sexton.store.layout import Lock, prepare, segment_name
from tests.support.recordings import HEADER

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
STATES = (
    SourceState("procfs.stat", "/proc/stat", "ok"),
    SourceState("kmsg.log", "/dev/kmsg", "denied"),
    SourceState("sysfs.gpus", "/sys", "absent"),
)


class LiveRecording:
    """Writes readings at any time of this boot's monotonic clock."""

    def __init__(self, directory: Path, boot: str = BOOT) -> None:
        self.directory = directory
        prepare(directory)
        self._lock = Lock(directory)
        place = directory / "open" / segment_name(1, time.time()).text
        self._segment = OpenSegment(place, {**HEADER, "boot_id": boot})
        self._ended = False

    def write(self, ages_s: Sequence[float], kernel: float = 0.5, dying: int = 7) -> None:
        """A reading of two cores and a count of cgroups at each age, the oldest first."""
        self.flush(
            {
                CoreTimes: [_cores(_now(-age_s), kernel) for age_s in ages_s],
                CgroupCensus: [_census(_now(-age_s), dying) for age_s in ages_s],
            }
        )

    def flush(self, rows: Mapping[type[Row], Sequence[Batch[Any]]]) -> None:
        self._segment.flush(rows, STATES)

    def status(self, **values: object) -> None:
        (self.directory / "status.json").write_text(json.dumps(values))

    def end(self) -> None:
        """As if the recorder had been killed."""
        if not self._ended:
            self._ended = True
            self._segment.close()
            self._lock.release()


def _now(ahead_s: float) -> tuple[float, float]:
    return time.monotonic() + ahead_s, time.time() + ahead_s


def _cores(moment: tuple[float, float], kernel: float) -> Batch[CoreTimes]:
    spent = int(moment[0] * 1000 * kernel)
    rest = int(moment[0] * 1000) - spent
    rows = tuple(CoreTimes(cpu, 0, 0, spent, rest, 0, 0, 0, 0) for cpu in range(2))
    return Batch(*moment, rows)


def _census(moment: tuple[float, float], dying: int) -> Batch[CgroupCensus]:
    row = CgroupCensus(
        "v1", 1, "/sys/fs/cgroup/memory", "node", 20 + dying, 20, dying, "count", None
    )
    return Batch(*moment, (row,))
