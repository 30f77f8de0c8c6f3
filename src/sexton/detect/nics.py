"""Network interfaces: which are real, what their counters did, and which core serves a queue.

The join nobody makes by hand: log line → queue → interrupt → core.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from sexton.detect.kernel_log import Line
from sexton.model.finding import Missing
from sexton.model.rows.net import Nic, NicCounter, NicQueue
from sexton.model.window import Window
from sexton.series.rates import totals

_MISSED = re.compile(r"queue_(\d+)_tx_missed_tx")
#: In the names of all counters that detectors, links and screens ask for.
_TELLING = re.compile(r"reset|timeout|wd|miss|starvation|allowance")


def physical(window: Window) -> tuple[str, ...] | None:
    """Names of interfaces with a device behind them; `None` where nobody could look."""
    rows = window.latest(Nic)
    if rows is None or hidden(window) is not None:
        return None
    return tuple(row.name for row in rows if row.physical)


def hidden(window: Window) -> Missing | None:
    """In a container without a real interface, the node's are in another network namespace."""
    rows = window.latest(Nic)
    inside = window.node is not None and window.node.container
    if rows is None or not inside or any(row.physical for row in rows):
        return None
    return Missing(
        "the node's network interfaces cannot be seen from this container",
        "sudo sexton diagnose  # on the node; in a pod: with hostNetwork",
    )


def namer(window: Window, lines: Iterable[Line]) -> Callable[[Line], str | None]:
    """Which interface a log line speaks of: by name, by bus address, or the only one there is.

    Drivers name the device alone while the interface is being taken down and put up again.
    """
    rows = [row for row in window.latest(Nic) or () if row.physical]
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
    """One `ethtool -S` counter: its value now, and how far it moved while we watched."""

    nic: str
    name: str
    value: int
    moved: int


def counters(window: Window, names: Iterable[str]) -> list[Counter]:
    """The counters of these names, of every interface that has them."""
    wanted = frozenset(names)
    assert all(map(_TELLING.search, wanted)), "a name that `_TELLING` does not know is not read"
    return [counts for counts in _telling(window) if counts.name in wanted]


def missed_by_queue(window: Window) -> list[tuple[str, int, Counter]]:
    """ENA's per-queue count of transmissions that were not completed in time."""
    found = []
    for counts in _telling(window):
        match = _MISSED.fullmatch(counts.name)
        if match is not None and counts.value:
            found.append((counts.nic, int(match[1]), counts))
    return found


def _telling(window: Window) -> list[Counter]:
    """Every counter that may tell of a reset or a loss: read once, out of hundreds."""
    return window.keep("nic counters", lambda: list(_read(window)))


def _read(window: Window) -> Iterator[Counter]:
    rows = [row for row in window.latest(NicCounter) or () if _TELLING.search(row.counter)]
    if not rows:
        return
    # Of the queues' own counters, which are many, only those that ever counted something matter.
    wanted = {
        (row.nic, row.counter) for row in rows if row.value or not _MISSED.fullmatch(row.counter)
    }
    # A driver that was loaded again counts from zero: that step tells nothing.
    moved = totals(window.columns(NicCounter, ("value",), wanted.__contains__))
    for row in rows:
        step = moved.get((row.nic, row.counter), {}).get("value", 0.0)
        yield Counter(row.nic, row.counter, row.value, int(step))


class Place(NamedTuple):
    """Where a queue is served: its name as "eth0:5", its interrupts and its cores.

    `cores` is empty where the interrupt may fire on several and nothing says which.
    """

    queue: str
    cores: tuple[str, ...]
    irqs: tuple[str, ...]


def place(window: Window, nic: str, queue: int, cpu: int | None = None) -> Place:
    """Queue → interrupt → core as of the window; `cpu` is the core if the driver reports it."""
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
    """Cores to which the interrupt of a real interface's queue is bound."""
    real = physical(window)
    served: dict[int, list[NicQueue]] = defaultdict(list)
    for row in window.latest(NicQueue) or ():
        if row.queue is not None and len(row.cpus) == 1 and (real is None or row.nic in real):
            served[row.cpus[0]].append(row)
    return {core: tuple(rows) for core, rows in served.items()}
