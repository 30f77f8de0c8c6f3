"""Alarms: what makes the recorder pin the minutes around a moment and read tables more often.

`Triggers` gets every reading and raises an alarm when a core is held in the kernel for two seconds,
the kernel log or a driver's counter shows a NIC reset, the log shows a soft lockup, dying cgroups
exceed a multiple of the live ones or leak, or a softirq waited for a second (four seconds before
the driver resets the device). The limits are those of the detectors, so every alarm here is a
finding there.

A condition that lasts is one alarm: it is extended while it lasts, up to `LONGEST_S`. After that it
is normal for this node, and only a calm of `CALM_S` arms the trigger again.

`Pinning` says which minutes an alarm pins. When a whole machine hangs in the kernel, every core
raises an alarm of the same minutes, at the worst time for writing a hundred files: cores that
follow within `_TOGETHER_S` share the first one's pin.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from sexton.detect.detectors.cgroups import zombie_memcgs
from sexton.detect.detectors.cgroups.zombie_memcgs import MANY, RATIO
from sexton.detect.detectors.cpu.saturated_core import HELD, KERNEL_SHARE
from sexton.detect.growth import ENOUGH
from sexton.detect.leak import BACK_S, Leak, leak
from sexton.detect.resets import COUNTERS, reports_reset
from sexton.detect.waits import WAIT
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus, CgroupDir, CgroupEvent, CgroupEventGap
from sexton.model.rows.cpu import CoreTimes, SoftirqWait
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import Nic, NicCounter
from sexton.model.rows.node import Node
from sexton.model.text import an_hour, printable, seconds, shorten
from sexton.model.window import Batch, Window
from sexton.series.catalogue import SOFTIRQ_LONGEST, SOFTIRQ_PENDING
from sexton.series.cores import CoreMeter, HeldSoFar
from sexton.series.meter import largest
from sexton.series.steps import rise
from sexton.store.layout import stamp
from sexton.store.pins import AFTER_S, BEFORE_S, Pin

LONGEST_S = 600.0
CALM_S = 600.0
#: Lines older than this when they are read belong to the time before the recorder.
_FRESH_S = 30.0
_SHOWN = 160
_MOST_LASTING = 1000
_RESET_COUNTERS = frozenset(COUNTERS)
#: A leak is judged by the census of every ten seconds, also while an alarm reads it each second.
_JUDGE_S = 8.0
#: At 45 removals a second the last 45 seconds, of a slow leak an hour.
_MOST_EVENTS = 4096


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
        self._held = HeldSoFar()
        self._zombies = 0
        self._leaks = _LeakWatch()
        self._nics: dict[str, str] = {}
        self._resets: dict[tuple[str, str], int] = {}
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
        elif kind is NicCounter:
            found = list(self._nic_counters(batch))
        elif kind is CgroupCensus:
            found = [*self._census(batch), *self._leaking(batch)]
        elif kind in (CgroupEvent, CgroupEventGap, CgroupDir, Node):
            self._leaks.add(kind, batch)
            return []
        elif kind is SoftirqWait:
            found = list(_waits(batch))
        else:
            return []
        return [placed for alarm in found if (placed := self._placed(alarm)) is not None]

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
        for hold in self._held.add(step, KERNEL_SHARE.value):
            if hold.lasts(HELD.value):
                words = f"core {hold.core} in the kernel for {hold.seconds:.1f} s so far"
                yield Raised("held_core", f"core {hold.core}", words, batch.mono_s)

    def _kernel_events(self, batch: Batch[KernelEvent]) -> Iterator[Raised]:
        for row in batch.rows:
            kind = _kind(row)
            if kind is None or row.mono_us is None:
                continue
            if batch.mono_s - row.mono_us / 1e6 > _FRESH_S:
                continue
            # Some lines of one reset name the interface, others only its bus address.
            bus = str(row.fields.get("bus", ""))
            about = row.fields.get("nic") or self._nics.get(bus) or bus or row.fields.get("cpu")
            words = shorten(printable(row.message), _SHOWN)
            yield Raised(kind, printable(str(about or "")), words, batch.mono_s)

    def _nic_counters(self, batch: Batch[NicCounter]) -> Iterator[Raised]:
        """Some drivers count resets that no line reports, and the log may not be readable."""
        read = {
            (row.nic, row.counter): row.value
            for row in batch.rows
            if row.counter in _RESET_COUNTERS
        }
        risen = {
            name[0]: name[1]
            for name, value in read.items()
            if value > self._resets.get(name, value)
        }
        self._resets = read
        for nic, counter in sorted(risen.items()):
            words = f"{printable(nic)}: the driver's counter {counter} has risen"
            yield Raised("nic_reset", printable(nic), words, batch.mono_s)

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

    def _leaking(self, batch: Batch[CgroupCensus]) -> Iterator[Raised]:
        found = self._leaks.judge(batch)
        if found is not None and found.severity is not None:
            words = f"{found.number:,} dying memory cgroups more in {seconds(found.seconds)}"
            words += f", {an_hour(found.per_hour)}"
            words += f" from {found.shown}" if found.shown else ""
            yield Raised(zombie_memcgs.NAME, "leak", shorten(words, _SHOWN), batch.mono_s)


class _LeakWatch:
    """The readings that `detect.leak` judges: counts of the last hour, the latest removals."""

    def __init__(self) -> None:
        self._counts: deque[Batch[CgroupCensus]] = deque()
        self._events: deque[Batch[CgroupEvent]] = deque()
        self._lost: deque[Batch[CgroupEventGap]] = deque()
        self._latest: dict[type[Row], list[Batch[Any]]] = {}
        self._number = 0

    def add(self, kind: type[Row], batch: Batch[Any]) -> None:
        if kind is CgroupEvent:
            last = self._events[-1] if len(self._events) > 1 else None
            if last is not None and not last.rows and last.follows and batch.follows:
                self._events.pop()  # an idle node has two empty readings a second
            self._events.append(batch)
            self._number += len(batch.rows)
            self._forget(batch.mono_s)
        elif kind is not CgroupEventGap:
            self._latest[kind] = [batch]
        elif batch.rows:
            self._lost.append(batch)

    def judge(self, batch: Batch[CgroupCensus]) -> Leak | None:
        """The leak that is proven now. Without growth there is none, and nothing to compute."""
        if self._counts and batch.mono_s - self._counts[-1].mono_s < _JUDGE_S:
            return None
        dying = _dying(batch)
        if dying is None:
            return None
        self._counts.append(batch)
        self._forget(batch.mono_s)
        fewest = min(number for each in self._counts if (number := _dying(each)) is not None)
        if rise(fewest, dying) < ENOUGH.value:
            return None
        batches: dict[type[Row], Any] = {**self._latest, CgroupCensus: self._counts}
        if self._events:
            batches |= {CgroupEvent: self._events, CgroupEventGap: self._lost}
        return leak(Window(batches))

    def _forget(self, now: float) -> None:
        while self._number > _MOST_EVENTS and len(self._events) > 1:
            self._number -= len(self._events.popleft().rows)
        for kept in (self._counts, self._events, self._lost):
            while len(kept) > 1 and now - kept[0].mono_s > BACK_S:
                old = kept.popleft()
                self._number -= len(old.rows) if kept is self._events else 0
        while self._lost and self._events and self._lost[0].mono_s < self._events[0].mono_s:
            self._lost.popleft()


def _dying(batch: Batch[CgroupCensus]) -> int | None:
    return batch.rows[0].dying if batch.rows else None


def _kind(row: KernelEvent) -> str | None:
    """The alarm that a line raises, if any. A driver that reports a starved queue may not reset."""
    if reports_reset(row):
        return "nic_reset"
    if row.family == "nic_starved":
        waited_us = row.fields.get("napi_us")
        starved = isinstance(waited_us, int) and waited_us >= WAIT.value * 1e6
        return "softirq_wait" if starved and row.fields.get("napi_scheduled") != 0 else None
    return "soft_lockup" if row.family == "soft_lockup" else None


def _waits(batch: Batch[SoftirqWait]) -> Iterator[Raised]:
    for row in batch.rows:
        waited_ms = largest(row, (SOFTIRQ_LONGEST, SOFTIRQ_PENDING))
        if waited_ms is not None and waited_ms >= WAIT.value * 1e3:
            words = f"{row.vector} of core {row.cpu} waited {waited_ms / 1e3:.1f} s"
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
        now_s = time.time()
        return Pin(
            id=f"{stamp(now_s)}-{raised.kind}-{self._made}",
            kind=raised.kind,
            about=raised.about,
            detail=raised.detail,
            boot_id=self._boot_id,
            start_s=raised.mono_s - BEFORE_S,
            end_s=raised.mono_s + AFTER_S,
            wall_s=now_s,
        )

    def _remember(self, key: tuple[str, str], pin: Pin) -> None:
        """Bounded, whatever the number of names."""
        self._of[key] = pin.id
        self._pins[pin.id] = pin
        if len(self._of) > _MOST_KNOWN:
            del self._of[next(iter(self._of))]
        if len(self._pins) > _MOST_KNOWN:
            del self._pins[next(iter(self._pins))]
