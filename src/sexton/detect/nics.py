"""Network interfaces: which are physical, how their counters moved, which core serves a queue.

Joins what is tedious to join by hand: log line → queue → interrupt → core.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sexton.detect.kernel_log import Line
from sexton.detect.rows_read import remembered
from sexton.model.finding import Evidence, Missing
from sexton.model.rows.net import Nic, NicCounter, NicQueue
from sexton.model.window import Window
from sexton.series.rates import totals

_MISSED = re.compile(r"queue_(\d+)_tx_missed_tx")
#: Matches the names of all counters that detectors, links and screens use.
_RELEVANT = re.compile(r"reset|timeout|wd|miss|starvation|allowance")


def physical(window: Window) -> tuple[str, ...] | None:
    """Names of interfaces with a device behind them; `None` if they could not be read."""
    rows = window.latest(Nic)
    if rows is None or hidden(window) is not None:
        return None
    return tuple(row.name for row in rows if row.physical)


def hidden(window: Window) -> Missing | None:
    """In a container without a physical interface, the node's are in another network namespace."""
    rows = window.latest(Nic)
    inside = window.node is not None and window.node.container
    if rows is None or not inside or any(row.physical for row in rows):
        return None
    return Missing(
        "the node's network interfaces cannot be seen from this container",
        "sudo sexton diagnose  # on the node; in a pod: with hostNetwork",
    )


def namer(nics: Iterable[Nic], lines: Iterable[Line]) -> Callable[[Line], str | None]:
    """A function that names a log line's interface: by name, by bus address, or the only one.

    Drivers log only the bus address while the interface is taken down and brought up again.
    """
    rows = [row for row in nics if row.physical]
    by_bus = {row.bus_address: row.name for row in rows if row.bus_address is not None}
    for line in lines:
        bus, nic = line.text("bus"), line.text("nic")
        if bus is not None and nic is not None:
            by_bus.setdefault(bus, nic)
    alone = rows[0].name if len(rows) == 1 else None

    def named(line: Line) -> str | None:
        return line.text("nic") or by_bus.get(line.text("bus") or "", alone)

    return named


class Counter(NamedTuple):
    """One `ethtool -S` counter: its value now, and how far it moved in the window, which is unknown
    if it was read only once or only fell."""

    nic: str
    name: str
    value: int
    moved: int | None

    def evidence(self, wrong_if: str, note: str = "", of: str = "") -> Evidence:
        """The counter as evidence; `of` is what it counts, with a space at the end."""
        moved = f", {self.moved:+} while watched" if self.moved else ""
        return Evidence(
            f"{self.nic} {self.name}{note}",
            f"{self.value:,}{moved}",
            "0",
            f"{of}since the driver was loaded",
            "ethtool -S",
            self.value,
            wrong_if,
        )


def counters(window: Window, names: Iterable[str]) -> list[Counter]:
    """The counters of these names, of every interface that has them."""
    wanted = frozenset(names)
    assert all(map(_RELEVANT.search, wanted)), "a name that `_RELEVANT` does not match is not read"
    return [counts for counts in _relevant(window) if counts.name in wanted]


def missed_by_queue(window: Window) -> list[tuple[str, int, Counter]]:
    """ENA's counters by queue of transmissions that were not completed in time."""
    return [
        (counts.nic, int(match[1]), counts)
        for counts in _relevant(window)
        if (match := _MISSED.fullmatch(counts.name)) is not None and counts.value
    ]


@remembered
def _relevant(window: Window) -> list[Counter]:
    """Every counter that may show a reset or a loss, out of hundreds."""
    rows = [row for row in window.latest(NicCounter) or () if _RELEVANT.search(row.counter)]
    if not rows:
        return []
    # Of the many counters by queue only those that ever counted something matter.
    wanted = {
        (row.nic, row.counter) for row in rows if row.value or not _MISSED.fullmatch(row.counter)
    }
    # A driver that was loaded again counts from zero: that step means nothing.
    moved = totals(window.columns(NicCounter, ("value",), wanted.__contains__))
    found = []
    for row in rows:
        step = moved.get((row.nic, row.counter), {}).get("value")
        found.append(Counter(row.nic, row.counter, row.value, None if step is None else int(step)))
    return found


class Place(NamedTuple):
    """Where a queue is served: its name ("eth0:5"), its cores and its interrupts.

    `cores` is empty if the interrupt may fire on several cores.
    """

    queue: str
    cores: tuple[str, ...]
    irqs: tuple[str, ...]


def place(window: Window, nic: str, queue: int, cpu: int | None = None) -> Place:
    """Queue → interrupt → core as of the window; `cpu` is the core that the driver reported."""
    rows = [row for row in window.latest(NicQueue) or () if row.nic == nic and row.queue == queue]
    # A transmit timeout is the transmit side's; many drivers serve both with one interrupt.
    rows = [row for row in rows if "tx" in row.direction] or rows
    cores = {row.cpus[0] for row in rows if len(row.cpus) == 1}
    named_cores = {cpu} if cpu is not None else cores
    return Place(
        f"{nic}:{queue}",
        tuple(str(core) for core in sorted(named_cores)),
        tuple(str(irq) for irq in sorted({row.irq for row in rows})),
    )


def serving_cores(window: Window) -> Mapping[int, tuple[NicQueue, ...]]:
    """By core, the queues of physical interfaces whose interrupt is bound to it."""
    real = physical(window)
    served: dict[int, list[NicQueue]] = defaultdict(list)
    for row in window.latest(NicQueue) or ():
        if row.queue is not None and len(row.cpus) == 1 and (real is None or row.nic in real):
            served[row.cpus[0]].append(row)
    return {core: tuple(rows) for core, rows in served.items()}
