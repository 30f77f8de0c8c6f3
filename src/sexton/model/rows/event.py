"""Lines of the kernel log and of the journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from sexton.model.row import Row, row

#: The family of lines that only a pattern of the node's owner knows.
FLAGGED = "flagged"


@row
class KernelEvent(Row):
    """One kernel log line that matched the pattern catalogue.

    `pattern` is the catalogue's id; `family` groups patterns for detectors ("nic_reset",
    "nic_starved", "soft_lockup", …). `fields` are the parsed values: `queue`, `cpu`, `nic`,
    `napi_us`, … as int or str. `mono_us` is microseconds since boot, `wall_s` UNIX time; either
    may be unknown. Lines older than the window are kept.
    """

    pattern: str
    family: str
    message: str
    mono_us: int | None
    wall_s: float | None
    fields: Mapping[str, int | str] = field(default_factory=dict)


@row
class KernelLog(Row):
    """How much of the log was read: lines, the time of the oldest one, and records lost."""

    lines: int
    oldest_mono_us: int | None
    lost: int
    origin: str


@row
class ServiceEvent(Row):
    """One journal line of a service that matched the pattern catalogue (login sessions refused).

    Separate from `KernelEvent`, so that a readable journal does not hide an unreadable kernel log.
    `speaker` is the line's syslog identifier.
    """

    pattern: str
    family: str
    speaker: str
    message: str
    wall_s: float | None
    fields: Mapping[str, int | str] = field(default_factory=dict)
