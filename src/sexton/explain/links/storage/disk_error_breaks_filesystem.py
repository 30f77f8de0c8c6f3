"""A disk fails, and the filesystem on it stops writing.

**Rule.** Both must be about the same disk: the filesystem's device is the disk or a partition of it
(`sda1` of `sda`, `nvme0n1p2` of `nvme0`). *Proven*: the filesystem failed within a minute of the
disk's first error or while the errors lasted. *Likely*: within ten minutes of the last. No link if
the filesystem failed before the disk's first error, or if the disks differ; mapped devices (`dm-0`)
are not traced to their disks.

**Evidence against.** None: a filesystem has no reason of its own to stop at that moment.
"""

from __future__ import annotations

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


@link(
    cause="stuck_io",
    effect="filesystem_errors",
    story="the filesystem on that disk stopped working",
    proof="the kernel log of those seconds",
)
def join(cause: Finding, effect: Finding, _window: Window) -> Bond | None:
    """The filesystem of a disk that failed before."""
    if cause.start is None or effect.start is None:
        return None
    broken = effect.entities.get("device", ())
    disks = cause.entities.get("device", ())
    shared = tuple(name for name in broken if any(is_part(name, disk) for disk in disks))
    end = cause.end or cause.start
    if not shared or not cause.start - _CLOCKS_S <= effect.start <= end + LATE_S:
        return None
    waited = max(effect.start - cause.start, 0.0)
    soon = waited <= SOON_S or effect.start <= end
    return Bond(
        Strength.PROVEN if soon else Strength.LIKELY,
        f"{shared[0]} failed {seconds(waited)} after the first error of its disk",
        shared=shared,
    )
