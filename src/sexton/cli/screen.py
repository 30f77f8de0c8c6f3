"""One screen of `sexton top`: a window, a width and a height in, text out.

Every core has a cell. With few cores a cell is a line with numbers and a task; with many the cells
shrink and are arranged in columns, numbered downwards, until all of them fit; the tasks of the
busiest cores are then listed below in full. Bars show user, system and softirq by character as well
as by colour, so that plain text and colour-blind readers get the same information.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.text import Text

from sexton.cli.load import CoreLoad, all_cores_load, core_loads, nic_loads
from sexton.detect.deaths import deaths
from sexton.detect.findings import reason
from sexton.detect.growth import growth, latest_count
from sexton.detect.resets import CAUSES, meaning
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.node import Node
from sexton.model.text import count, printable, seconds, shorten, size
from sexton.model.window import Window
from sexton.reports.text.blocks import grant_for
from sexton.series.busiest import TaskLoad, worst_tasks
from sexton.series.rates import lasts

_USER, _SYSTEM, _SOFTIRQ = ("░", "green"), ("█", "red"), ("▒", "magenta")
_GAP = 2
#: Whatever COLUMNS says: a bar of any length would take any memory.
_WIDEST = 1000
_MANY = 32
#: A core below this is not listed among the busiest.
_HOT = 0.25
_MOST_NICS = 4
_MOST_HOT = 4


class Grid(NamedTuple):
    """How the cells are arranged: `cell` characters wide, `rows` deep."""

    columns: int
    rows: int
    cell: int


def frame(window: Window, width: int, height: int) -> Text:
    """The whole screen, never wider or higher than given."""
    width, height = min(max(width, 40), _WIDEST), max(height, 10)
    loads = core_loads(window)
    tasks = worst_tasks(window)
    head = [_title(window, width), _summary(loads, all_cores_load(window), width)]
    fixed = [_zombies(window), *_nics(window, width)]
    room = height - len(head) - len(fixed) - 4  # a blank line around the cores, one for events
    cores: list[Text] = []
    hot: list[Text] = []
    if loads:
        many = len(loads) >= _MANY
        grid = fit(len(loads), width, max(room - (4 if many else 2), 1))
        cores = list(_cells(loads, tasks, grid))
        if grid.columns > 1:
            hot = list(_busiest(loads, tasks, width))[: max(room - len(cores) - 2, 0)]
            hot = hot if len(hot) > 1 else []
    lines = [*head, Text(""), *cores, *hot, Text(""), *fixed]
    lines += _events(window, width, height - len(lines))
    for line in lines:
        line.truncate(width)
    return Text("\n").join(lines[:height])


def fit(cores: int, width: int, rows: int) -> Grid:
    """The fewest columns in which all cores fit, or the narrowest cells.

    >>> fit(2, 80, 10), fit(96, 120, 26)
    (Grid(columns=1, rows=2, cell=80), Grid(columns=4, rows=24, cell=28))
    """
    most = max((width + _GAP) // (8 + _GAP), 1)
    for columns in range(1, most + 1):
        deep = -(-cores // columns)
        if deep <= rows or columns == most:
            return Grid(columns, min(deep, rows), (width - _GAP * (columns - 1)) // columns)
    raise AssertionError("unreachable")


def _title(window: Window, width: int) -> Text:
    node = window.node
    name = printable(node.hostname) if node else "?"
    parts = [f"Linux {printable(node.kernel)}" if node else ""]
    read = window.batches(Node)
    if node and read and node.uptime_s is not None:  # read once, so add the time since then
        parts.append(f"up {seconds(node.uptime_s + window.end_mono - read[-1].mono_s)}")
    left = Text.assemble((f" {name}", "bold"), "  ", " · ".join(part for part in parts if part))
    clock = time.strftime("%H:%M:%S", time.localtime(window.end)) if window.end else ""
    right = f"{clock}  q quits "
    left.truncate(max(width - len(right) - 1, 10))
    left.append(" " * (width - left.cell_len - len(right)))
    left.append(right, "dim")
    return left


def _summary(loads: Sequence[CoreLoad] | None, every: CoreLoad | None, width: int) -> Text:
    if loads == ():
        return Text(" no rates: this tree is a copy, and its counters do not change")
    if not loads or every is None:
        return Text(" measuring: rates need a second reading")
    worst = max(loads, key=lambda load: load.kernel)
    text = Text(f" {count(len(loads), 'core')}, {every.busy:.0%} busy on average; ")
    style = "bold red" if worst.is_held else ""
    text.append(f"most kernel time: core {worst.cpu}, {worst.kernel:.0%}", style)
    for words in ((" user  ", " system  ", " softirq "), ("u ", "s ", "i ")):
        legend = Text.assemble(_USER, words[0], _SYSTEM, words[1], _SOFTIRQ, words[2])
        space = width - text.cell_len - legend.cell_len
        if space >= 2:
            return text.append(" " * space).append_text(legend)
    return text


def bar(load: CoreLoad, width: int) -> Text:
    """The three kinds in `width` characters; a long bar never rounds a kind away, in a short one a
    whole character would be too much."""
    text = Text()
    left = width = max(width, 0)
    for share, (mark, style) in (
        (load.system, _SYSTEM),
        (load.softirq, _SOFTIRQ),
        (load.user, _USER),
    ):
        length = min(round(share * width) or (width >= 10 and share >= 0.02), left)
        text.append(mark * length, style)
        left -= length
    return text.append(" " * left)


def _cells(loads: Sequence[CoreLoad], tasks: Mapping[int, TaskLoad], grid: Grid) -> Iterator[Text]:
    shown = loads
    places = grid.columns * grid.rows
    if len(loads) > places:  # too many: only the busiest, in their order
        hottest = sorted(loads, key=lambda load: load.busy, reverse=True)[:places]
        shown = sorted(hottest, key=lambda load: load.cpu)
        yield Text(f" the {places} busiest of {len(loads)}:")
    digits = len(str(max(load.cpu for load in loads)))
    for row in range(grid.rows):
        line = Text()
        for column in range(grid.columns):
            place = column * grid.rows + row
            if place >= len(shown):
                continue
            if column:
                line.append(" " * _GAP)
            load = shown[place]
            line.append_text(_cell(load, tasks.get(load.cpu), digits, grid.cell))
        yield line


def _cell(load: CoreLoad, task: TaskLoad | None, digits: int, width: int) -> Text:
    """Number, bar, share, and as much of the task as fits."""
    style = "bold red" if load.is_held else ""
    text = Text(f" {load.cpu:>{digits}} " if width >= 60 else f"{load.cpu:>{digits}} ", style)
    if width >= 60:
        text.append_text(bar(load, min(width // 3, 40)))
        text.append(f" {load.user:>4.0%} user {load.system:>4.0%} sys {load.softirq:>4.0%} soft")
        text.append("  ")
        text.append(_name(task, width - text.cell_len))
        return _padded(text, width)
    number = f"{load.busy * 100:>3.0f}{load.kind if load.busy >= 0.01 else ' '}"
    rest = width - text.cell_len - len(number) - 1
    name_width = min(rest // 2, 16) if rest >= 14 else 0
    text.append_text(bar(load, rest - name_width - (1 if name_width else 0)))
    text.append(f" {number}" if rest > 0 else number, style)
    if name_width:
        text.append(" ")
        text.append(_name(task, name_width, with_ids=False), "dim")
    return _padded(text, width)


def _padded(text: Text, width: int) -> Text:
    text.truncate(width)
    text.append(" " * (width - text.cell_len))
    return text


def _name(task: TaskLoad | None, room: int, with_ids: bool = True) -> str:
    if task is None or room < 3:
        return ""
    if not with_ids:
        return shorten(printable(task.comm), room)
    return shorten(f"{printable(task.name)} {task.share:.0%}", room)


def _busiest(
    loads: Sequence[CoreLoad], tasks: Mapping[int, TaskLoad], width: int
) -> Iterator[Text]:
    ranked = sorted(loads, key=lambda load: load.busy, reverse=True)
    hot = [load for load in ranked if load.busy >= _HOT][:_MOST_HOT]
    if not hot:
        return
    yield Text("")
    for load in hot:
        text = Text(f" core {load.cpu:<4}")
        text.append(f"{load.user:>4.0%} user {load.system:>4.0%} sys {load.softirq:>4.0%} soft  ")
        text.append(_name(tasks.get(load.cpu), width - text.cell_len) or "no single busy thread")
        yield text


def _zombies(window: Window) -> Text:
    census = latest_count(window)
    if census is None:
        return Text(f" zombies  unknown: {reason(window.why_missing(CgroupCensus))}")
    if census.dying is None:
        return Text(f" zombies  unknown: {printable(census.reason or '')}")
    where = "" if census.scope == "node" else " in this subtree"
    text = Text(" zombies  ")
    text.append(f"{census.dying:,}", "bold")
    text.append(f" · {count(census.live or 0, 'live memory cgroup')}{where}")
    grown = growth(window)
    if grown is not None and lasts(grown.seconds, 1.0):
        words = f"{grown.by:+,} in" if grown.by else "steady for"
        text.append(f" · {words} {seconds(grown.seconds)}")
    traced = deaths(window)
    if traced is not None and traced.all:
        text.append(f" · {len(traced.all):,} removed, {len(traced.unreleased):,} not freed")
    return text


def _nics(window: Window, width: int) -> Iterator[Text]:
    loads = nic_loads(window)
    for load in loads[:_MOST_NICS]:
        text = Text(f" {shorten(printable(load.name), 10):<8} ")
        text.append(f"in {_per_second(load.rx_bytes)} out {_per_second(load.tx_bytes)}")
        text.append(f"  drops {_number(load.drops)}/s  errors {_number(load.errors)}/s")
        if load.resets is not None:
            text.append(f"  resets {load.resets:,}", "bold red" if load.resets else "")
        for name, value, moved in load.counters:
            if value and meaning(name) in CAUSES and text.cell_len < width - 20:
                text.append(f"  {name} {value:,}", "bold red" if moved else "")
        yield text
    if len(loads) > _MOST_NICS:
        yield Text(f" and {count(len(loads) - _MOST_NICS, 'other interface')}")


def _per_second(value: float | None) -> str:
    return f"{'?' if value is None else size(value)}/s".rjust(12)


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}"


def _events(window: Window, width: int, room: int) -> list[Text]:
    if room < 2:
        return []
    events = window.all(KernelEvent)
    if events is None:
        state = window.why_missing(KernelEvent)
        grant = f" → {grant_for(state.grant, 'top')}" if state.grant else ""
        why = shorten(f" kernel log  {reason(state)}", max(width - len(grant), 40))
        return [Text(""), Text(f"{why}{grant}", "dim")]
    if not events:
        return [Text(""), Text(" kernel log  no known problems", "dim")]
    lines = [Text("")]
    for event in events[-(room - 1) :]:
        when = (
            time.strftime("%b %d %H:%M:%S", time.localtime(event.wall_s))
            if event.wall_s is not None
            else "time unknown"
        )
        lines.append(
            Text.assemble((f" {when}  ", "dim"), shorten(printable(event.message), width - 20))
        )
    return lines
