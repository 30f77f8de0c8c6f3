"""NIC faults: drops, errors, resets, packets the driver gave up on.

Per interface; drops and errors from ``/proc/net/dev``, the rest from the driver's own statistics
(``ethtool -S``), summed over queues. Allowance exceeded: packets that a cloud's hypervisor dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from sexton.detect import resets
from sexton.explorer.lanes.nics import Devices
from sexton.explorer.tiles.build import Metrics, Part, Taken
from sexton.explorer.tiles.lines import Line, Lines
from sexton.explorer.tiles.pyramid import Array
from sexton.explorer.tiles.registry import lane
from sexton.model.rows.net import NetDevice, NicCounter
from sexton.model.text import printable
from sexton.model.window import Key
from sexton.series.catalogue import NIC_COUNTER, metric
from sexton.series.sums import known_sum

#: Lines that are shown: those that moved most.
MOST = 10
_DEVICE = {
    "nic_rx_dropped": "rx dropped",
    "nic_tx_dropped": "tx dropped",
    "nic_rx_errors": "rx errors",
    "nic_tx_errors": "tx errors",
}
#: If less went wrong, these are shown too, to show that they are zero.
_RELEVANT, _LEAST = ("resets", "tx timeouts", "missed tx", "rx dropped", "tx dropped"), 4
_RESETS = "resets"
#: Counter names of ENA, virtio, ixgbe, mlx5 and others. Timeouts by queue are from virtio, which
#: resets nothing.
_CALLED = (
    ("tx timeouts", re.compile(r"_tx_timeouts?$")),
    ("failed resets", re.compile(r"reset_fail$")),
    ("missed tx", re.compile(r"missed_tx$")),
    ("allowance exceeded", re.compile(r"allowance_exceeded$")),
    ("driver drops", re.compile(r"^(?:rx|tx)_drops$|^rx_(?:overruns|missed_errors)$")),
)


def _group(counter: str) -> str | None:
    if resets.meaning(counter) is not None:
        return _RESETS
    return next((name for name, pattern in _CALLED if pattern.search(counter)), None)


@lane(kind="lines", draws=tuple(map(metric, _DEVICE)), order=75, needs=(NetDevice, NicCounter))
class Builder(Lines):
    """Builds a line per interface and fault that ever moved."""

    def __init__(self) -> None:
        self._devices = Devices()
        self._groups: dict[str, str | None] = {}
        wanted = self._devices.wanted
        self._device = Metrics(*(metric(name)._replace(wanted=wanted) for name in _DEVICE))
        self._driver = Metrics(NIC_COUNTER._replace(wanted=self._named))
        super().__init__(self._device, self._driver)
        self._moved: dict[Line, float] = {}

    def _named(self, key: Key) -> bool:
        return self._devices.wanted(key) and self._group_of(str(key[1])) is not None

    def _group_of(self, counter: str) -> str | None:
        if counter not in self._groups:
            found = _group(counter)
            if len(self._groups) < 100_000:
                self._groups[counter] = found
            return found
        return self._groups[counter]

    def ahead(self, part: Part) -> None:
        self._driver.ahead(part)

    def feed(self, part: Part) -> None:
        self._devices.feed(part)
        super().feed(part)

    def put(self, taken: Taken, lines: Mapping[Line, Array]) -> None:
        seconds = (taken.end - taken.start).astype(np.float32)
        for line, rates in lines.items():
            self._moved[line] = self._moved.get(line, 0.0) + float(np.nansum(rates * seconds))
        super().put(taken, lines)

    def lines(self, source: Metrics, taken: Taken) -> dict[Line, Array]:
        if source is self._device:
            return {
                (str(key[0]), _DEVICE[column]): value
                for column, values in taken.values.items()
                for key, value in zip(taken.things, values, strict=True)
            }
        several: dict[Line, list[int]] = {}
        for at, key in enumerate(taken.things):
            several.setdefault((str(key[0]), self._group_of(str(key[1])) or ""), []).append(at)
        values = taken.values[NIC_COUNTER.name]
        return {
            line: resets.by_counters([str(taken.things[at][1]) for at in rows], values[rows])
            if line[1] == _RESETS
            else known_sum(values[rows])
            for line, rows in several.items()
        }

    def shown(self) -> list[tuple[Line, str]]:
        most = sorted(self._moved, key=lambda line: (-self._moved[line], line))
        moved = [line for line in most if self._moved[line] > 0][:MOST]
        still = [line for line in most if line not in moved and line[1] in _RELEVANT]
        shown = sorted([*moved, *still[: max(_LEAST - len(moved), 0)]])
        return [(line, printable(" ".join(line))) for line in shown]
