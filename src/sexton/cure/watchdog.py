"""Watches for harm to the node while a change is applied.

It compares two kinds of readings with those before the change: reset and error counters of the
network interfaces (any rise is too much), and pressure (PSI), the share of the last seconds in
which tasks waited for CPU, I/O or memory. Memory pressure is ignored during reclaim, which causes
it; the I/O pressure it causes is not.

A separate thread reads them twice a second, so a step that hangs does not stop it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from sexton.detect.registry import Threshold
from sexton.detect.resets import COUNTERS
from sexton.errors import SourceError
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.model.text import printable
from sexton.model.text import seconds as duration
from sexton.series.pressure import Level, between
from sexton.series.rates import lasts
from sexton.sources.nic.devices import physical
from sexton.sources.nic.ethtool import Counters
from sexton.sources.procfs import net_dev, pressure

WORSE = Threshold("pressure", 25, "points more", "that much more waiting than before is not noise")
OVER = Threshold("over", 3, "s", "a shorter burst is over before anyone could react")
_EVERY_S = 0.5
_RESOURCES = ("cpu", "io", "memory")
_ERRORS = ("rx_errors", "tx_errors")


class Levels(NamedTuple):
    """One reading. `pressure_us` is stalled time since boot; absent is not zero."""

    mono_s: float
    pressure_us: Mapping[str, int]
    nic: Mapping[str, int]


class Watchdog:
    """`reason` is empty while nothing got worse and time is left."""

    def __init__(self, host: Host, max_seconds: float) -> None:
        self._host = host
        self._counters = Counters(host)
        self.end_s = time.monotonic() + max_seconds
        self._limit_s = max_seconds
        self._done = threading.Event()
        self._reason = ""
        self._reclaiming = False
        self._real = _physical(host)
        self.first = self.read()
        self._before: Mapping[str, float] = {}
        self._recent: deque[Levels] = deque([self.first])
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def watches(self) -> str:
        """What is watched on this node, for display."""
        seen = [
            f"{resource} pressure" for resource in _RESOURCES if resource in self.first.pressure_us
        ]
        if self.first.nic:
            seen.append(f"{len(self.first.nic)} NIC reset and error counters")
        return ", ".join(seen) or "nothing: neither PSI nor NIC counters can be read"

    def settle(self, seconds: float) -> None:
        """Watch the node before anything is changed; this is the baseline."""
        time.sleep(seconds)
        self._before = shares(self.first, self.read())
        self._thread.start()

    def close(self) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        self._counters.close()

    def reclaiming(self, on: bool) -> None:
        """Whether a step now causes memory pressure itself."""
        self._reclaiming = on

    @property
    def reason(self) -> str:
        """Why to stop now."""
        if not self._reason and time.monotonic() > self.end_s:
            return f"--max-seconds {self._limit_s:g} reached"
        return self._reason

    def read(self) -> Levels:
        """Read pressure and NIC counters now."""
        stalled: dict[str, int] = {}
        with suppress(SourceError):
            for row in pressure.PressureFiles(self._host).collect():
                if row.kind == "some" and row.resource in _RESOURCES:
                    stalled[row.resource] = row.total_us
        nic: dict[str, int] = {}
        with suppress(SourceError):
            content = text(self._host.files, f"{self._host.net_dir}/dev")
            for device in net_dev.parse(content):
                if device.name in self._real:
                    nic |= {f"{device.name} {name}": getattr(device, name) for name in _ERRORS}
            for counter in self._counters.collect():
                if counter.counter in COUNTERS:
                    nic[f"{counter.nic} {counter.counter}"] = counter.value
        return Levels(time.monotonic(), stalled, nic)

    def _watch(self) -> None:
        while not self._done.wait(_EVERY_S):
            now = self.read()
            self._recent.append(now)
            while len(self._recent) > 2 and now.mono_s - self._recent[1].mono_s >= OVER.value:
                self._recent.popleft()
            found = self._worse(now)
            if found and not self._reason:
                self._reason = found

    def _worse(self, now: Levels) -> str:
        for name, value in now.nic.items():
            before = self.first.nic.get(name)
            if before is not None and value > before:
                return f"{printable(name)} rose from {before:,} to {value:,}"
        oldest = self._recent[0]
        if not lasts(now.mono_s - oldest.mono_s, OVER.value):
            return ""
        for resource, share in shares(oldest, now).items():
            usual = self._before.get(resource, 0.0)
            if resource == "memory" and self._reclaiming:
                continue
            if share >= usual + WORSE.value:
                return (
                    f"{resource} pressure is {share:.0f} % over the last"
                    f" {duration(now.mono_s - oldest.mono_s)}, was {usual:.0f} % before"
                )
        return ""


def _physical(host: Host) -> frozenset[str]:
    try:
        return frozenset(physical(host))
    except SourceError:
        return frozenset()


def shares(before: Levels, after: Levels) -> dict[str, float]:
    """Percent of the time between two readings in which tasks waited, per resource.

    >>> shares(Levels(0, {"io": 0}, {}), Levels(2, {"io": 1_000_000, "cpu": 5}, {}))
    {'io': 50.0}
    """
    if after.mono_s <= before.mono_s:
        return {}
    found = {}
    for name, us in after.pressure_us.items():
        was = Level(before.mono_s, True, before.pressure_us.get(name), None)
        stall = between(was, Level(after.mono_s, True, us, None))
        if stall is not None:
            found[name] = stall.some
    return found
