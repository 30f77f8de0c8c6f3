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

_METRICS = tuple(
    metric(f"tcp_{name}")
    for name in ("retransmitted_segments", "timeouts", "established_resets", "listen_drops")
)


@lane(kind="lines", draws=_METRICS, order=100, needs=(TcpCounters,))
class Builder(Lines):
    """Builds a line per counter."""

    def __init__(self) -> None:
        super().__init__(Metrics(*_METRICS))

    def lines(self, _source: Metrics, taken: Taken) -> dict[Line, Array]:
        return {(item.name,): taken.values[item.name][0] for item in _METRICS}

    def shown(self) -> list[tuple[Line, str]]:
        return [((item.name,), item.help) for item in _METRICS if (item.name,) in self.rows]
