"""Metrics of the recorder itself, from ``status.json`` in its directory.

The file is written every few seconds and may be half of one, or anybody's: only numbers and short
texts are taken from it. A disk that is full, read-only or hangs takes no new one either: so a
running recorder whose status is old cannot write.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sexton.export import families as f
from sexton.export.samples import Samples
from sexton.store.layout import read_plain

_NAME = "status.json"
_MOST_BYTES = 256 << 10


def read_status(directory: Path) -> Mapping[str, Any]:
    """The recorder's last status; empty if there is none that can be read."""
    try:
        found = json.loads(read_plain(directory / _NAME, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def add_status(samples: Samples, status: Mapping[str, Any]) -> None:
    """Alarms, lost rows and paused sources."""
    samples.add(f.ALARMS, _whole(status.get("alarms")))
    samples.add(f.LOST, _whole(status.get("lost_rows")))
    shed = status.get("shed")
    for item in shed if isinstance(shed, list) else ():
        if isinstance(item, dict):
            samples.add(f.SHED, 1, str(item.get("source")), str(item.get("how")))


def cannot_write(status: Mapping[str, Any], late_s: float) -> bool | None:
    """Whether a running recorder with this status can write nothing now; `None` if unknown. One
    that is older than `late_s` could not be replaced."""
    at, problem = status.get("at"), status.get("problem")
    if not isinstance(at, int | float) or not isinstance(problem, str):
        return None
    return bool(problem) or not time.time() - at <= late_s


def _whole(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
