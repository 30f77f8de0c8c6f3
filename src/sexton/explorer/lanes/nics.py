"""NIC traffic: received and sent, by interface.

The physical interfaces, else those with the most traffic; from ``/proc/net/dev``, once a second.
Faults are in the lane below.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sexton.explorer.tiles.build import Metrics, Part, Taken
from sexton.explorer.tiles.lines import Line, Lines
from sexton.explorer.tiles.pyramid import Array
from sexton.explorer.tiles.registry import lane
from sexton.model.rows.net import NetDevice, Nic
from sexton.model.text import printable
from sexton.model.window import Key
from sexton.series.catalogue import NIC_RECEIVED, NIC_SENT
from sexton.store.arrays import numbers, values

#: Interfaces that are shown.
MOST = 4
_DIRECTIONS = ((NIC_RECEIVED, "received"), (NIC_SENT, "sent"))


#: A node with containers has thousands of interfaces; this many without a device are counted.
_MOST_OTHERS = 64


class Devices:
    """Learns from each segment which interfaces are physical."""

    def __init__(self) -> None:
        self._physical: set[str] = set()
        self._others: set[str] = set()

    def feed(self, part: Part) -> None:
        """Read a segment's list of interfaces."""
        if not part.book.segment.rows(Nic):
            return
        found = part.book.segment.table(Nic, ("name", "physical"))
        if found is None or not {"name", "physical"} <= {*found.column_names}:
            return
        names = values(found.column("name"))
        physical = numbers(found.column("physical"), False).tolist()
        self._physical |= {name for name, real in zip(names, physical, strict=True) if real}

    def wanted(self, key: Key) -> bool:
        """Is this interface, the first part of a key, one to show?"""
        name = str(key[0])
        if self._physical:
            return name in self._physical
        if name == "lo":
            return False
        if name not in self._others and len(self._others) < _MOST_OTHERS:
            self._others.add(name)
        return name in self._others


@lane(kind="lines", draws=(NIC_RECEIVED, NIC_SENT), order=70, needs=(NetDevice,))
class Builder(Lines):
    """Builds two lines per interface."""

    def __init__(self) -> None:
        self._devices = Devices()
        wanted = self._devices.wanted
        super().__init__(Metrics(*(item._replace(wanted=wanted) for item, _ in _DIRECTIONS)))
        self._carried: dict[str, float] = {}

    def feed(self, part: Part) -> None:
        self._devices.feed(part)
        super().feed(part)

    def put(self, taken: Taken, lines: Mapping[Line, Array]) -> None:
        for (device, _), rates in lines.items():
            self._carried[device] = self._carried.get(device, 0.0) + float(np.nansum(rates))
        super().put(taken, lines)

    def lines(self, _source: Metrics, taken: Taken) -> dict[Line, Array]:
        return {
            (str(key[0]), way): rates
            for item, way in _DIRECTIONS
            for key, rates in zip(taken.things, taken.values[item.name], strict=True)
        }

    def shown(self) -> list[tuple[Line, str]]:
        most = sorted(self._carried, key=lambda name: (-self._carried[name], name))[:MOST]
        return [
            ((device, way), f"{printable(device)} {way}")
            for device in sorted(most)
            for _, way in _DIRECTIONS
        ]
