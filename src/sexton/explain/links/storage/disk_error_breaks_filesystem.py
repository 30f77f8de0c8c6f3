"""A disk fails, and the filesystem on it stops writing.

**Rule.** Both must be about the same disk: the filesystem's device is the disk or a partition of it
(`sda1` of `sda`, `nvme0n1p2` of `nvme0`). Only the log lines of that disk and that filesystem
count, not those of another disk, a file server or a hung task in the same finding. *Proven*: the
filesystem failed within a minute of the disk's first error or while the errors lasted. *Likely*:
within ten minutes of the last. No link if the filesystem failed before the disk's first error, or
if the disks differ; mapped devices (`dm-0`) are not traced to their disks.

**Evidence against.** None: a filesystem has no reason of its own to stop at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from sexton.detect import kernel_log
from sexton.detect.block_devices import is_part
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.text import seconds
from sexton.model.window import Window

SOON_S = 60.0
LATE_S = 600.0
#: Log lines of the same moment come in any order.
_CLOCKS_S = 1.0
_DISKS, _FILESYSTEMS = ("disk_timeout", "block_error"), ("filesystem",)
#: What a filesystem logs when it stops, besides errors.
_STOPPED = ("read-only", "shut down")


@link(
    cause="stuck_io",
    effect="filesystem_errors",
    story="the filesystem on that disk stopped working",
    proof="the kernel log of those seconds",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The first filesystem of a disk that failed before."""
    found = (_bond(name, cause, effect, window) for name in effect.entities.get("device", ()))
    return next((bond for bond in found if bond is not None), None)


def _bond(name: str, cause: Finding, effect: Finding, window: Window) -> Bond | None:
    disks = tuple(disk for disk in cause.entities.get("device", ()) if is_part(name, disk))
    errors = _logged(window, _DISKS, disks)
    failed = min(_stopped(name, window), default=effect.start)
    if not errors or failed is None:
        return None
    if not min(errors) - _CLOCKS_S <= failed <= max(errors) + LATE_S:
        return None
    waited = max(failed - min(errors), 0.0)
    soon = waited <= SOON_S or failed <= max(errors)
    return Bond(
        Strength.PROVEN if soon else Strength.LIKELY,
        f"{name} failed {seconds(waited)} after the first error of its disk",
        shared=(name, *(disk for disk in disks if disk != name)),
    )


def _stopped(name: str, window: Window) -> list[float]:
    """When the filesystem stopped, or else had errors."""
    stopped = _logged(window, _FILESYSTEMS, (name,), _STOPPED)
    return stopped or _logged(window, _FILESYSTEMS, (name,), (None,))


def _logged(
    window: Window,
    families: Iterable[str],
    devices: tuple[str, ...],
    phases: tuple[str | None, ...] = (None,),
) -> list[float]:
    """When these devices logged a problem."""
    return [
        line.wall_s
        for line in kernel_log.lines(window, families)
        if line.text("device") in devices and line.text("phase") in phases and line.wall_s
    ]
