"""TCP: retransmits, and connections that timed out.

What loss looks like from above: retransmits follow a stalled queue within a second, timeouts later.
From ``/proc/net/snmp`` and ``/proc/net/netstat``, once a second.
"""

from __future__ import annotations

from sexton.explorer.tiles.build import Metrics, Taken
from sexton.explorer.tiles.lines import Line, Lines
from sexton.explorer.tiles.pyramid import Array
from sexton.explorer.tiles.registry import lane
from sexton.model.rows.net import TcpCounters
from sexton.series.catalogue import metric

_LINES = {
    "tcp_retransmitted_segments": "retransmitted segments",
    "tcp_timeouts": "timeouts",
    "tcp_established_resets": "connections reset",
    "tcp_listen_drops": "listen drops",
}


@lane(kind="lines", unit=metric("tcp_timeouts").unit, order=100, needs=(TcpCounters,))
class Builder(Lines):
    """Builds a line per counter."""

    def __init__(self) -> None:
        super().__init__(Metrics(*map(metric, _LINES)))

    def lines(self, _source: Metrics, taken: Taken) -> dict[Line, Array]:
        return {(name,): taken.values[name][0] for name in _LINES}

    def shown(self) -> list[tuple[Line, str]]:
        return [((name,), words) for name, words in _LINES.items() if (name,) in self.rows]
