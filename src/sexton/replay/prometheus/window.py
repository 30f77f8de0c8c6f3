"""A node's series in a Prometheus as the window that the detectors judge.

Scraped counters are averages over the scrape interval. Every table's state says how long its steps
are (`SourceState.step_s`), and every detector declares what it can tell from such steps
(`Detector.averages`): what they may hide is *unknown*, never absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from sexton.detect.registry import RECORDER
from sexton.errors import SourceAbsent
from sexton.model.row import Row
from sexton.model.row import table as table_name
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.node import Node as NodeRow
from sexton.model.rows.unit import ServiceManager, Unit
from sexton.model.text import count, printable, seconds
from sexton.model.window import Batch, SourceState, Window, bounds_of
from sexton.replay.prometheus.client import Client, Samples, matching
from sexton.replay.prometheus.rows import Scraped, scraped
from sexton.replay.prometheus.table import BESIDE, NODE, TABLES, Table
from sexton.replay.prometheus.target import Node, Target, find_node
from sexton.sources.registry import all_sources

#: The window that is judged if none is given, and the longest.
USUAL_S, MOST_S = 600.0, 86_400.0
_BOOTED = "node_boot_time_seconds"
_MEMCGS = "node_cgroups_cgroups"
#: The exporter computes the time of boot from two clocks: it moves by up to a second.
_REBOOTED_S = 60.0
_ALL_CPUS = '=~"total|"'


class Found(NamedTuple):
    """The window, and notes for the reader of the verdict."""

    window: Window
    notes: tuple[str, ...]


def window(client: Client, name: str, start: float, end: float) -> Found:
    """What Prometheus has of this node from `start` to `end` (UNIX)."""
    span = (start, end)
    node = find_node(client, name, start, end)
    boots = _samples(client, node.exporter, _BOOTED, span)
    booted = [value for series in boots for _, value in series.values]
    # Without a time of boot the clock's zero stands for it.
    boot_s = booted[-1] if booted and booted[-1] < end else 0.0
    tables: dict[type[Row], Scraped] = {}
    for table in TABLES:
        target = node.exporter if table.exporter == NODE else node.kubelet
        made = scraped(table, _samples(client, target, table.pattern, span), boot_s)
        if made.batches:
            tables[table.row] = made
    if not tables:
        what = f"no series of {printable(node.hostname)} in this window tells anything"
        raise SourceAbsent(client.url, what)
    notes = [*node.notes]
    if any(value < boot_s - _REBOOTED_S for value in booted):
        ago = seconds(max(end - boot_s, 0.0))
        notes.append(f"the node booted {ago} before the end; what was before is not judged")
    notes += _gaps(tables, span)
    memcgs = _samples(client, node.exporter, _MEMCGS, (max(start, boot_s), end))
    return Found(_window(node, tables, memcgs, boot_s), tuple(notes))


def _samples(
    client: Client, target: Target | None, pattern: str, span: tuple[float, float]
) -> list[Samples]:
    if target is None:
        return []
    # cAdvisor may give CPU time by core, too; a metric without the label matches "".
    more = {"cpu": _ALL_CPUS} if pattern.startswith("container_") else {}
    return client.samples(matching(target.labels, pattern, **more), *span)


def _gaps(tables: Mapping[type[Row], Scraped], span: tuple[float, float]) -> list[str]:
    """How much of the span was not scraped, by the table that was scraped most often."""
    most = max(tables.values(), key=lambda made: len(made.batches))
    late = [
        later.wall_s - earlier.wall_s
        for earlier, later in pairwise(most.batches)
        if later.wall_s - earlier.wall_s > 1.5 * most.usual_s
    ]
    notes = []
    if late:
        worst = seconds(max(late))
        notes.append(f"{count(len(late), 'scrape')} late or missing; the longest gap is {worst}")
    known = most.batches[-1].wall_s - most.batches[0].wall_s
    if span[1] - span[0] - known > 2 * most.usual_s + 1:
        whole = seconds(span[1] - span[0])
        notes.append(f"{seconds(known)} of {whole} were scraped; the rest is unknown")
    return notes


def _window(
    node: Node, tables: Mapping[type[Row], Scraped], memcgs: list[Samples], boot_s: float
) -> Window:
    batches: dict[type[Row], list[Batch[Any]]] = {
        kind: made.batches for kind, made in tables.items()
    }
    for kind, beside in BESIDE.items():
        assert (kind, beside) == (ServiceManager, Unit)
        manager = ServiceManager("systemd", None, NODE)
        if beside in tables:
            batches[kind] = [replace(batch, rows=(manager,)) for batch in batches[beside]]
    edges = bounds_of(batches.values())
    cores = tables.get(CoreTimes)
    number = len(cores.batches[-1].rows) if cores is not None else None
    uptime = edges.end_mono if boot_s else None
    about = NodeRow(node.hostname, node.kernel or "?", number, None, uptime, *(None,) * 9)
    batches[NodeRow] = [Batch(edges.end_mono, edges.end, (about,))]
    states, providers = _states(node, tables, memcgs)
    return Window(batches, states, providers, edges)


def _states(
    node: Node, tables: Mapping[type[Row], Scraped], memcgs: list[Samples]
) -> tuple[list[SourceState], dict[type[Row], str]]:
    """The state of every table, with the step that would give what is missing."""
    states: dict[str, SourceState] = {}
    providers: dict[type[Row], str] = {}
    for table in TABLES:
        state = _state(node, table, tables.get(table.row))
        states[state.id] = state
        providers[table.row] = state.id
    for kind, beside in BESIDE.items():
        providers[kind] = providers[beside]
    for source in all_sources():
        others = [kind for kind in source.rows if kind not in providers and kind is not NodeRow]
        if others:
            providers |= dict.fromkeys(others, source.id)
            what = _together(memcgs) if CgroupCensus in others else "no exporter has it"
            states[source.id] = SourceState(source.id, source.path, "absent", what, RECORDER)
    return list(states.values()), providers


def _state(node: Node, table: Table, made: Scraped | None) -> SourceState:
    name = f"prometheus.{table_name(table.row)}"
    if made is not None:
        readings = len(made.batches)
        what, step = f"{count(readings, 'scrape')} of {table.exporter}", made.longest_s
        grant = f"{NODE} {table.turn_on}" if _lacks_fields(table, made) else ""
        return SourceState(name, table.names, "ok", what, grant, reads=readings, step_s=step)
    if (node.exporter if table.exporter == NODE else node.kubelet) is None:
        what = f"Prometheus does not scrape the {table.exporter} of this node"
        grant = table.turn_on if table.exporter != NODE else RECORDER
        return SourceState(name, table.names, "absent", what, grant)
    what = f"no series of this node from {table.exporter}"
    grant = f"{NODE} {table.turn_on}" if table.exporter == NODE else RECORDER
    return SourceState(name, table.names, "absent", what, grant)


def _lacks_fields(table: Table, made: Scraped) -> bool:
    """Does the exporter leave out fields of vmstat that detectors use, as by default?"""
    names = {getattr(row, "name", "") for row in made.batches[-1].rows}
    return table.row is VmCounter and not any(name.startswith("pgscan") for name in names)


def _together(memcgs: list[Samples]) -> str:
    """What node_exporter's own count of memory cgroups tells: not how many are dying, but whether
    something piles up."""
    counted = [
        series.values
        for series in memcgs
        if series.labels.get("subsys_name") == "memory" and series.values
    ]
    if not counted:
        return "Prometheus cannot tell dying memory cgroups from live ones"
    (_, first), (_, last) = counted[0][0], counted[0][-1]
    before = f" ({first:,.0f} at the start)" if first != last else ""
    return f"{_MEMCGS} counts {last:,.0f} memory cgroups{before}, live and dying together"
