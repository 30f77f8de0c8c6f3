"""NIC traffic: received and sent, by interface.

The interfaces behind which there is a device, else those that carried most; from
``/proc/net/dev``, once a second. What went wrong there is the lane below.
"""

from __future__ import annotations

import numpy as np

from sexton.explorer.tiles.build import Metrics, Part, Rows, put
from sexton.explorer.tiles.devices import Devices
from sexton.explorer.tiles.lines import Lines
from sexton.explorer.tiles.registry import lane
from sexton.model.net import NetDevice
from sexton.model.text import printable
from sexton.series.catalogue import metric

#: Interfaces that are shown.
MOST = 4
#: Bytes as megabits.
_MEGABITS = 8e-6
_WAYS = ((metric("nic_rx_bytes"), "received"), (metric("nic_tx_bytes"), "sent"))


@lane(kind="lines", unit="Mbit/s", order=70, needs=(NetDevice,))
class Builder(Lines):
    """Two lines per interface."""

    def __init__(self) -> None:
        super().__init__()
        self._devices = Devices()
        wanted = self._devices.wanted
        self._counters = Metrics(*(each._replace(wanted=wanted) for each, _ in _WAYS))
        self._rows = Rows()
        self._carried: dict[str, float] = {}

    def feed(self, part: Part) -> None:
        self._devices.feed(part)
        taken = self._counters.take(part)
        if taken is None:
            return
        devices = [str(key[0]) for key in taken.things]
        rates = np.stack([taken.values[each.name] for each, _ in _WAYS]) * np.float32(_MEGABITS)
        for name, total in zip(devices, np.nansum(rates, axis=(0, 2)).tolist(), strict=True):
            self._carried[name] = self._carried.get(name, 0.0) + total
        things = [(device, way) for _, way in _WAYS for device in devices]
        values = rates.reshape(1, len(things), -1)
        put(self.pyramid, taken, self._rows.spread(things, values, np.nan))

    def shown(self) -> list[tuple[int, str]]:
        rows = {thing: row for row, thing in enumerate(self._rows)}
        most = sorted(self._carried, key=lambda name: (-self._carried[name], name))[:MOST]
        return [
            (rows[device, way], f"{printable(device)} {way}")
            for device in sorted(most)
            for _, way in _WAYS
        ]
