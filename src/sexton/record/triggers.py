"""What makes a recorder keep the minutes around a moment and look closer.

Each watch is fed the readings as they come and says when something begins: a core held in the
kernel for two seconds, a NIC reset or a soft lockup in the kernel's log, zombies past a multiple of
the live cgroups, a softirq that waited for a second (which is four before the driver resets the
device). The limits are the detectors' own, so that what is alarming here is a finding there.

What lasts is one alarm and not one per second: while it goes on it is extended, up to
`LONGEST_S`. After that it is how this node is, and only a calm of `CALM_S` arms the watch again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sexton.detect.detectors import zombie_memcgs
from sexton.detect.detectors.saturated_core import HELD, KERNEL_SHARE
from sexton.detect.detectors.zombie_memcgs import MANY, RATIO
from sexton.detect.waits import WAIT
from sexton.model.cgroup import CgroupCensus
from sexton.model.cpu import CoreTimes
from sexton.model.event import KernelEvent
from sexton.model.net import Nic
from sexton.model.row import Row
from sexton.model.softirq import SoftirqWait
from sexton.model.text import printable, shorten
from sexton.model.window import Batch
from sexton.series.cores import CoreMeter
from sexton.series.rates import SLACK

LONGEST_S = 600.0
CALM_S = 600.0
#: Lines older than this when they are read belong to the time before the recorder.
_FRESH_S = 30.0
_FAMILIES = {"nic_reset": "nic_reset", "nic_starved": "nic_reset", "soft_lockup": "soft_lockup"}
_SHOWN = 160
_MOST_LASTING = 1000


class Raised(NamedTuple):
    """Something alarming, as seen at `mono_s`; `about` tells one alarm of a kind from another.

    `goes_on` where it was told before and has not ended since.
    """

    kind: str
    about: str
    detail: str
    mono_s: float
    goes_on: bool = False


class Triggers:
    """Every watch over the readings of one recorder."""

    def __init__(self) -> None:
        self._cores = CoreMeter()
        self._held_since: dict[int, float] = {}
        self._zombies = 0
        self._nics: dict[str, str] = {}
        self._lasting: dict[tuple[str, str], tuple[float, float]] = {}

    def feed(self, kind: type[Row], batch: Batch[Any]) -> list[Raised]:
        """What in this reading deserves an alarm now."""
        if kind is CoreTimes:
            found = list(self._core_times(batch))
        elif kind is KernelEvent:
            found = list(self._kernel_events(batch))
        elif kind is Nic:
            self._nics = {row.bus_address: row.name for row in batch.rows if row.bus_address}
            return []
        elif kind is CgroupCensus:
            found = list(self._census(batch))
        elif kind is SoftirqWait:
            found = list(_waits(batch))
        else:
            return []
        return [told for each in found if (told := self._placed(each)) is not None]

    def _placed(self, raised: Raised) -> Raised | None:
        """As news, as going on, or `None` where it has gone on for too long to be an alarm."""
        key = (raised.kind, raised.about)
        since, last = self._lasting.pop(key, (raised.mono_s, raised.mono_s))
        if raised.mono_s - last >= CALM_S:
            since = raised.mono_s
        self._lasting[key] = (since, raised.mono_s)
        if len(self._lasting) > _MOST_LASTING:  # a flood of names must not eat our memory
            self._lasting.pop(next(iter(self._lasting)))
        if raised.mono_s - since > LONGEST_S:
            return None
        return raised._replace(goes_on=since != raised.mono_s)

    def _core_times(self, batch: Batch[CoreTimes]) -> Iterator[Raised]:
        step = self._cores.add(batch)
        if step is None:
            return
        start_s = float(step.start[-1])
        shares = step.percent(step.kernel)[:, -1].tolist()
        for core, share in zip(step.cores, shares, strict=True):
            if not share >= KERNEL_SHARE.value:  # NaN, which is unknown, is not
                self._held_since.pop(core, None)
                continue
            held_s = batch.mono_s - self._held_since.setdefault(core, start_s)
            if held_s >= HELD.value * SLACK:
                words = f"core {core} in the kernel for {held_s:.1f} s"
                yield Raised("held_core", f"core {core}", words, batch.mono_s)

    def _kernel_events(self, batch: Batch[KernelEvent]) -> Iterator[Raised]:
        for row in batch.rows:
            kind = _FAMILIES.get(row.family)
            if kind is None or row.mono_us is None:
                continue
            if batch.mono_s - row.mono_us / 1e6 > _FRESH_S:
                continue
            # Some lines of one reset name the interface, others only where it is plugged in.
            bus = str(row.fields.get("bus", ""))
            about = row.fields.get("nic") or self._nics.get(bus) or bus or row.fields.get("cpu")
            words = shorten(printable(row.message), _SHOWN)
            yield Raised(kind, printable(str(about or "")), words, batch.mono_s)

    def _census(self, batch: Batch[CgroupCensus]) -> Iterator[Raised]:
        for row in batch.rows:
            if row.dying is None or row.live is None:
                continue
            if row.dying <= self._zombies / 4:  # most of them went: what comes back is news
                self._zombies = row.dying
            if row.dying < MANY.value:
                continue
            # Once past the limit, again at each doubling.
            if row.dying >= RATIO.value * row.live and row.dying >= 2 * self._zombies:
                self._zombies = row.dying
                words = f"{row.dying:,} dying memory cgroups, {row.live:,} live"
                yield Raised(zombie_memcgs.NAME, f"{row.dying:,}", words, batch.mono_s)


def _waits(batch: Batch[SoftirqWait]) -> Iterator[Raised]:
    for row in batch.rows:
        waited_us = max(row.longest_us or 0, row.pending_us or 0)
        if waited_us >= WAIT.value * 1e6:
            words = f"{row.vector} of core {row.cpu} waited {waited_us / 1e6:.1f} s"
            yield Raised("softirq_wait", f"core {row.cpu}", words, batch.mono_s)
