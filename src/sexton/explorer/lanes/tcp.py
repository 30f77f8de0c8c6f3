"""TCP: segments sent again, and connections that timed out.

What loss looks like from above: retransmits follow a stalled queue within a second, timeouts later.
From ``/proc/net/snmp`` and ``/proc/net/netstat``, once a second.
"""

from __future__ import annotations

from sexton.explorer.tiles.build import Metrics, Part, put
from sexton.explorer.tiles.lines import Lines, stacked
from sexton.explorer.tiles.registry import lane
from sexton.model.net import TcpCounters
from sexton.series.catalogue import metric

_LINES = {
    "tcp_retransmitted_segments": "retransmitted segments",
    "tcp_timeouts": "timeouts",
    "tcp_established_resets": "connections reset",
    "tcp_listen_drops": "listen drops",
}


@lane(kind="lines", unit="/s", order=100, needs=(TcpCounters,))
class Builder(Lines):
    """A line per counter."""

    def __init__(self) -> None:
        super().__init__()
        self._counters = Metrics(*map(metric, _LINES))

    def feed(self, part: Part) -> None:
        taken = self._counters.take(part)
        if taken is not None:
            put(self.pyramid, taken, stacked([taken.values[name][0] for name in _LINES]))

    def shown(self) -> list[tuple[int, str]]:
        return list(enumerate(_LINES.values()))
