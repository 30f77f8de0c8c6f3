"""What the queues' cores did with their packet backlog while we watched."""

from __future__ import annotations

from collections.abc import Iterator

from sexton.detect import nics
from sexton.model.cpu import SoftnetCpu
from sexton.model.finding import Evidence
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.rates import totals


def backlog(window: Window) -> Iterator[Evidence]:
    """Drops and cut-short polls of the queues' cores: shown, and no sign of starving."""
    cores = nics.serving_cores(window)
    read = window.columns(
        SoftnetCpu, ("dropped", "time_squeeze"), lambda key: not cores or key[0] in cores
    )
    moved = totals(read)
    for field, what, normal in (
        ("dropped", "packets dropped from the backlog", "0"),
        ("time_squeeze", "polls cut short (busy, not starved)", "a few a second"),
    ):
        total = int(sum(each[field] for each in moved.values()))
        if moved and (total or field == "dropped"):
            yield Evidence(
                what,
                f"{total:,}",
                normal,
                f"in {duration(window.seconds)}",
                "/proc/net/softnet_stat",
                total,
                "another window would show other traffic",
            )
