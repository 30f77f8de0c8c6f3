"""Which interfaces are worth a line: those behind which there is a device."""

from __future__ import annotations

from sexton.explorer.tiles.build import Part
from sexton.model.net import Nic
from sexton.model.window import Key
from sexton.store.arrays import numbers, values

#: A node of containers has thousands; without a device behind them these many are counted.
_MOST = 64


class Devices:
    """Learns from segment to segment which interfaces are devices."""

    def __init__(self) -> None:
        self._physical: set[str] = set()
        self._others: set[str] = set()

    def feed(self, part: Part) -> None:
        """Look at a segment's list of interfaces."""
        if not part.book.segment.rows(Nic):
            return
        found = part.book.segment.table(Nic, ("name", "physical"))
        if found is None or not {"name", "physical"} <= {*found.column_names}:
            return
        names = values(found.column("name"))
        physical = numbers(found.column("physical"), False).tolist()
        self._physical |= {name for name, real in zip(names, physical, strict=True) if real}

    def wanted(self, key: Key) -> bool:
        """Is this interface, the first of a key, one of them?"""
        name = str(key[0])
        if self._physical:
            return name in self._physical
        if name == "lo":
            return False
        if name not in self._others and len(self._others) < _MOST:
            self._others.add(name)
        return name in self._others
