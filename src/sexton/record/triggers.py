"""Alarms: what makes the recorder pin the minutes around a moment and read tables more often.

`Triggers` gets every reading and raises an alarm when a core is held in the kernel for two seconds,
the kernel log shows a NIC reset or a soft lockup, dying cgroups exceed a multiple of the live ones,
or a softirq waited for a second (four seconds before the driver resets the device). The limits are
those of the detectors, so every alarm here is a finding there.

A condition that lasts is one alarm: it is extended while it lasts, up to `LONGEST_S`. After that it
is normal for this node, and only a calm of `CALM_S` arms the trigger again.

`Pinning` says which minutes an alarm pins. When a whole machine hangs in the kernel, every core
raises an alarm of the same minutes, at the worst time for writing a hundred files: cores that
follow within `_TOGETHER_S` share the first one's pin.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from sexton.detect.detectors.cgroups import zombie_memcgs
from sexton.detect.detectors.cgroups.zombie_memcgs import MANY, RATIO
from sexton.detect.detectors.cpu.saturated_core import HELD, KERNEL_SHARE
from sexton.detect.waits import WAIT
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import Nic
from sexton.model.rows.softirq import SoftirqWait
from sexton.model.text import printable, shorten
from sexton.model.window import Batch
from sexton.series.cores import CoreMeter
from sexton.series.rates import SLACK
from sexton.store.pins import AFTER_S, BEFORE_S, Pin

LONGEST_S = 600.0
CALM_S = 600.0
#: Lines older than this when they are read belong to the time before the recorder.
_FRESH_S = 30.0
_FAMILIES = {"nic_reset": "nic_reset", "nic_starved": "nic_reset", "soft_lockup": "soft_lockup"}
_SHOWN = 160
_MOST_LASTING = 1000


class Raised(NamedTuple):
    """An alarm seen at `mono_s`; `about` distinguishes alarms of one kind.

    `goes_on` if it was raised before and has not ended since.
    """

    kind: str
    about: str
    detail: str
    mono_s: float
    goes_on: bool = False


class Triggers:
    """Raises alarms from the readings of one recorder."""

    def __init__(self) -> None:
        self._cores = CoreMeter()
        self._held_since: dict[int, float] = {}
        self._zombies = 0
        self._nics: dict[str, str] = {}
        self._lasting: dict[tuple[str, str], tuple[float, float]] = {}

    def feed(self, kind: type[Row], batch: Batch[Any]) -> list[Raised]:
        """Alarms that this reading raises."""
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
        return [placed for core_time in found if (placed := self._placed(core_time)) is not None]

    def _placed(self, raised: Raised) -> Raised | None:
        """The alarm as new or going on; `None` if it has lasted for more than `LONGEST_S`."""
        key = (raised.kind, raised.about)
        since, last = self._lasting.pop(key, (raised.mono_s, raised.mono_s))
        if raised.mono_s - last >= CALM_S:
            since = raised.mono_s
        self._lasting[key] = (since, raised.mono_s)
        if len(self._lasting) > _MOST_LASTING:  # bounded, whatever the number of names
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
            if row.dying <= self._zombies / 4:  # most were freed: a rise after that is a new alarm
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


#: A pin that lasts is written again when its end has moved by so much.
_REPIN_S = 30.0
_TOGETHER_S = 10.0
_OF_CORES = frozenset({"held_core", "softirq_wait", "soft_lockup"})
_MOST_KNOWN = 2000


class Placed(NamedTuple):
    """The pin of an alarm: `is_news` if the alarm is new, `is_first` if the pin is, `is_moved` if
    the pin must be written."""

    pin: Pin
    is_news: bool
    is_first: bool
    is_moved: bool


class Pinning:
    """The pins of one recorder, by what raised them."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id
        self._made = 0
        self._pins: dict[str, Pin] = {}
        self._of: dict[tuple[str, str], str] = {}

    def place(self, raised: Raised) -> Placed:
        """The pin that holds the minutes around it."""
        key = (raised.kind, raised.about)
        known = self._pins.get(self._of.pop(key, ""))
        is_news = not raised.goes_on or known is None
        pin = self._beside(raised) if is_news else known
        is_first = pin is None
        pin = self._new(raised) if pin is None else pin
        late_s = raised.mono_s + AFTER_S - pin.end_s
        if late_s >= _REPIN_S:
            pin = replace(pin, end_s=raised.mono_s + AFTER_S)
        self._remember(key, pin)
        return Placed(pin, is_news, is_first, is_first or late_s >= _REPIN_S)

    def _beside(self, raised: Raised) -> Pin | None:
        if raised.kind not in _OF_CORES:
            return None
        newest = next(
            (pin for pin in reversed(self._pins.values()) if pin.kind == raised.kind), None
        )
        if newest is None or raised.mono_s - (newest.start_s + BEFORE_S) > _TOGETHER_S:
            return None
        return newest

    def _new(self, raised: Raised) -> Pin:
        self._made += 1
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return Pin(
            id=f"{moment}-{raised.kind}-{self._made}",
            kind=raised.kind,
            about=raised.about,
            detail=raised.detail,
            boot_id=self._boot_id,
            start_s=raised.mono_s - BEFORE_S,
            end_s=raised.mono_s + AFTER_S,
            wall_s=time.time(),
        )

    def _remember(self, key: tuple[str, str], pin: Pin) -> None:
        """Bounded, whatever the number of names."""
        self._of[key] = pin.id
        self._pins[pin.id] = pin
        if len(self._of) > _MOST_KNOWN:
            del self._of[next(iter(self._of))]
        if len(self._pins) > _MOST_KNOWN:
            del self._pins[next(iter(self._pins))]
