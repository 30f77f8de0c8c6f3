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
from sexton.store.sealed import seal
from tests.support.recordings import HEADER

BOOT = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
STATES = (
    SourceState("procfs.stat", "/proc/stat", "ok"),
    SourceState("kmsg.log", "/dev/kmsg", "denied"),
    SourceState("sysfs.gpus", "/sys", "absent"),
)


class LiveRecording:
    """Writes readings at any time of this boot's monotonic clock."""

    def __init__(self, directory: Path, boot: str = BOOT, sequence: int = 1) -> None:
        self.directory = directory
        prepare(directory)
        self._lock = Lock(directory)
        self._header = {**HEADER, "boot_id": boot}
        self._sequence = sequence
        self._segment = self._begun()
        self._ended = False

    def _begun(self) -> OpenSegment:
        name = segment_name(self._sequence, time.time()).text
        return OpenSegment(self.directory / "open" / name, self._header)

    def next_segment(self) -> None:
        """Seal what is written, and begin another."""
        self._segment.close()
        seal(self._segment.directory, self.directory / "segments")
        self._sequence += 1
        self._segment = self._begun()

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
        content = json.dumps({"at": time.time(), **values})
        (self.directory / "status.json").write_text(content)

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
