"""`ethtool -S`: driver counters of every physical interface, by ioctl.

The names are the driver's: for ENA `total_resets`, `tx_timeout`, `suspected_poll_starvation`,
`missing_tx_cmpl`, `wd_expired`, per queue `queue_5_tx_missed_tx`, and EC2's
`conntrack_allowance_exceeded`. As text, which is what archives keep::

    NIC statistics:
         total_resets: 3
         suspected_poll_starvation: 3
         queue_0_tx_cnt: 3471293

Quirks: some drivers reset their counters when the device is reset, so a counter may go down; names
may repeat (the first is kept) and hold anything; a few drivers print section titles, which have no
value. The number of counters changes with the number of queues: then the names are read again. At
most 4,096 per interface are kept, the global ones come first. Only physical interfaces are read,
and one without counters is skipped.

>>> list(parse_text("NIC statistics:\\n     total_resets: 3\\n     [Tx]: \\n"))
[('total_resets', 3)]
"""

from __future__ import annotations

from collections.abc import Iterator

from sexton.errors import SourceAbsent
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.model.rows.net import NicCounter
from sexton.sources.nic.devices import physical
from sexton.sources.nic.ioctl import Ethtool
from sexton.sources.registry import Reading, source

PATH = "ethtool -S"
MOST_COUNTERS = 4096
_MOST_VALUE = (1 << 64) - 1
_MOST_DIGITS = len(str(_MOST_VALUE))


@source(PATH, rows=(NicCounter,), period_s=1.0)
class Counters(Reading):
    """Every counter of every physical interface."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._names: dict[str, list[str]] = {}
        self._nics: list[str] | None = None
        self._ethtool: Ethtool | None = None

    def collect(self) -> list[NicCounter]:
        if self._nics is None or not self._host.live:
            self._nics = physical(self._host)
        if not self._nics:
            raise SourceAbsent(PATH, "no physical interface")
        rows: list[NicCounter] = []
        found_any = False
        for nic in self._nics:
            try:
                rows.extend(self._live(nic) if self._host.live else self._archived(nic))
                found_any = True
            except SourceAbsent:
                continue  # no counters, or gone, or not collected
        if not found_any:
            raise SourceAbsent(PATH, f"{', '.join(self._nics)}: no counters")
        return rows

    def close(self) -> None:
        if self._ethtool is not None:
            self._ethtool.close()

    def _live(self, nic: str) -> Iterator[NicCounter]:
        if self._ethtool is None:
            self._ethtool = Ethtool()
        size = self._ethtool.size(nic)
        names = self._names.get(nic)
        if names is None or len(names) != size:
            names = self._names[nic] = self._ethtool.names(nic, size)
        return _rows(nic, zip(names, self._ethtool.counters(nic, size), strict=False))

    def _archived(self, nic: str) -> Iterator[NicCounter]:
        return _rows(nic, parse_text(text(self._files, f"/commands/ethtool_S_{nic}")))


def parse_text(content: str) -> Iterator[tuple[str, int]]:
    """The counters in the text of `ethtool -S`; titles and unknown lines are skipped."""
    for line in content.split("\n"):
        name, colon, value = line.strip().rpartition(":")
        value = value.strip()
        plain = value.isascii() and value.isdecimal() and len(value) <= _MOST_DIGITS
        if colon and plain and int(value) <= _MOST_VALUE:
            yield name, int(value)


def _rows(nic: str, pairs: Iterator[tuple[str, int]]) -> Iterator[NicCounter]:
    seen: set[str] = set()
    for name, value in pairs:
        if name and name not in seen:
            seen.add(name)
            yield NicCounter(nic, name, value)
            if len(seen) >= MOST_COUNTERS:
                return
