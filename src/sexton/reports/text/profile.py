"""`sexton profile info`, `top` and `timeline` as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from sexton.model.profile import NO_CLOCK, Event, FunctionCount, Kind
from sexton.model.text import count, printable, seconds, shorten
from sexton.profile.timeline import Timeline
from sexton.reports.text.blocks import block, clamp
from sexton.reports.text.heat import Grid, Terminal, heat_lines, scale, stretched
from sexton.reports.text.profile_head import Capture, Times, footnotes, identity, labelled, percent

_MOST = 8
_KINDS = {
    Kind.KERNEL: "kernel",
    Kind.USER: "user",
    Kind.TASK: "task",
    Kind.UNTOLD: "",
    Kind.ROOT: "",
}


class Contents(NamedTuple):
    """Samples of a capture by event, task and core, the largest first."""

    events: Sequence[tuple[Event, int]]
    tasks: Sequence[tuple[str, int]]
    cores: Sequence[tuple[int, int]]
    stacks: int
    functions: int
    idle: int
    seconds: int


def info_text(capture: Capture, held: Contents, terminal: Terminal) -> str:
    """One screen."""
    width = clamp(terminal.width)
    facts = capture.facts
    lines = [*block(identity(capture), width, "   ", first=""), ""]
    lines += labelled("FORMAT", [printable(facts.format) or "unknown"], width)
    if facts.command:
        lines += labelled("COMMAND", [shorten(printable(facts.command), 300)], width)
    lines += labelled("CLOCK", [_clock(capture)], width)
    lines += labelled("EVENTS", [_event(*event) for event in held.events[:_MOST]], width)
    total = sum(number for _, number in held.events)
    kinds = f"{count(held.stacks, 'distinct stack')}, {count(held.functions, 'function')}"
    idle = f", {percent(held.idle / total)} of samples idle" if total else ""
    lines += labelled("STACKS", [kinds + idle], width)
    lines += labelled(
        "TASKS", _tops([(printable(n) or "(no name)", c) for n, c in held.tasks], total), width
    )
    known = [(f"core {cpu}", number) for cpu, number in held.cores if cpu >= 0]
    number = count(len(known), "core")
    busiest = _tops(known, total)
    words = [f"{number} sampled; most samples: {busiest[0]}"] if known else ["unknown"]
    lines += labelled("CORES", words, width)
    lines += footnotes(capture, width)
    return "\n".join(lines) + "\n"


def _clock(capture: Capture) -> str:
    times = capture.times
    if capture.end_ns is None:
        return "none: samples have no timestamps"
    if not times.has_wall:
        kind = printable(capture.facts.clock.kind)
        known = "" if kind == NO_CLOCK.kind else f"{kind}; "
        return f"{known}no wall clock (record with -k CLOCK_MONOTONIC)"
    return f"{times.date(times.start_ns)} to {times.clock(capture.end_ns)}"


def _event(event: Event, samples: int) -> str:
    rate = f", {event.hertz} Hz" if event.hertz else ""
    rate += f", period {event.period:,}" if event.period and not event.hertz else ""
    return f"{printable(event.name)}{rate}: {count(samples, 'sample')}"


def _tops(pairs: Sequence[tuple[str, int]], total: int) -> list[str]:
    shown = [f"{name} {percent(number / total)}" for name, number in pairs[:_MOST] if total]
    more = f" · {len(pairs) - _MOST} more" if len(pairs) > _MOST else ""
    return [" · ".join(shown) + more] if shown else ["none"]


def top_lines(found: Sequence[FunctionCount], total: int, most: int, width: int) -> Iterator[str]:
    """One line per function."""
    if not total:
        yield " no samples match"
        return
    room = clamp(width, 140) - 40
    yield f" {'SELF':>8} {'TOTAL':>8} {'SAMPLES':>11}  {'FUNCTION':{room}} WHERE"
    for function_count in found[:most]:
        where = (
            printable(function_count.module).rpartition("/")[2].removeprefix("[kernel.kallsyms]")
        )
        where = where or _KINDS.get(Kind(function_count.kind), "")
        name = shorten(printable(function_count.name), room)
        yield (
            f" {percent(function_count.own / total):>8} {percent(function_count.total / total):>8} "
            f"{function_count.own:>11,}  {name:{room}} {shorten(where, 24)}".rstrip()
        )
    if len(found) > most:
        yield f" and {count(len(found) - most, 'more function')}: --number N shows more"


def timeline_lines(
    grid: Grid, counted: Timeline, times: Times, terminal: Terminal
) -> Iterator[str]:
    """When something ran: one row of heat (or one per core), and the peak."""
    yield from heat_lines(stretched(grid, min(terminal.width, 200)), times, terminal)
    yield ""
    yield scale(terminal, ("none", f"peak, {percent(_largest(grid))} of samples"))
    matched = np.maximum(counted.matched, 0).sum(axis=0)
    if not matched.sum():
        yield " no samples match"
        return
    peak = int(matched.argmax())
    at = counted.start_ns + peak * counted.column_ns
    yield (
        f" {count(int(matched.sum()), 'sample')} in total; one column is {seconds(grid.column_s)}; "
        f"peak at {times.clock(at, 1)}: {int(matched[peak]):,}"
    )


def _largest(grid: Grid) -> float:
    return float(np.nanmax(grid.values)) if (~np.isnan(grid.values)).any() else 0.0
