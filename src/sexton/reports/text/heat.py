"""Heatmaps on a terminal: coloured half-blocks, two rows per line; letters when piped."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sexton.model.text import seconds
from sexton.profile.heatmap import Heatmap
from sexton.profile.timeline import Timeline
from sexton.reports.text.blocks import clamp
from sexton.reports.text.profile_head import Capture, Times, footnotes, identity

#: From idle to hottest, of the 256 terminal colours.
_RAMP = (235, 53, 54, 90, 126, 162, 198, 204, 209, 215, 221, 230)
_LETTERS = ".:-=+*oO#@"
_MOST_ROWS = 16
#: A short capture is drawn with wider columns, up to this many characters.
_WIDEST = 6
_TITLES = {
    "cores": "one row per core",
    "peaks": "one row per core, busiest second of each column",
    "subsecond": "50 rows of 20 ms, from bottom to top",
}


class Grid(NamedTuple):
    """The matrix to draw: a row per core or part of a second; NaN: not sampled."""

    values: npt.NDArray[np.float64]
    labels: Sequence[str]
    start_ns: int
    column_s: float
    #: The value of the last colour; `None`: the largest value in the matrix.
    full: float | None = None


class Terminal(NamedTuple):
    """Width in characters, and whether it shows colours."""

    width: int = 88
    colour: bool = False


def grid_of(drawn: Heatmap, hertz: int | None) -> Grid:
    """A heatmap as a grid; parts of a second run from bottom to top.

    `hertz` is the value of a fully busy core; without it the largest value takes the last colour.
    """
    values = np.where(drawn.values < 0, np.nan, drawn.values)
    labels = [_row(drawn.kind, row) for row in drawn.rows]
    if drawn.kind == "subsecond":
        values, labels = values[::-1], labels[::-1]
    full = None if hertz is None else float(max(hertz, 1))
    return Grid(values, labels, drawn.start_s * 10**9, float(drawn.column_seconds), full)


def grid_of_timeline(counted: Timeline) -> Grid:
    """Shares of all samples; the largest takes the last colour."""
    cpus = counted.cpus
    labels = ["share"] if cpus is None else [_row("cores", cpu) for cpu in cpus]
    return Grid(counted.shares, labels, counted.start_ns, counted.column_ns / 1e9)


def stretched(grid: Grid, width: int) -> Grid:
    """Repeat each column to fill the width, up to `_WIDEST` times."""
    columns = grid.values.shape[1]
    times = min(max((width - label_width(grid.labels)) // max(columns, 1), 1), _WIDEST)
    values = np.repeat(grid.values, times, axis=1)
    return grid._replace(values=values, column_s=grid.column_s / times)


def heatmap_text(capture: Capture, grid: Grid, kind: str, terminal: Terminal) -> str:
    """The whole screen of `sexton profile heatmap`."""
    wide = stretched(grid, min(terminal.width, 200))
    words = ("idle", "fully busy" if grid.full is not None else "maximum")
    lines = [
        f" {identity(capture)}",
        f" {_TITLES[kind]}; one column is {seconds(grid.column_s)}",
        "",
        *heat_lines(wide, capture.times, terminal),
        "",
        scale(terminal, words),
        *footnotes(capture, clamp(terminal.width)),
    ]
    return "\n".join(lines) + "\n"


def _row(kind: str, row: int) -> str:
    if kind == "subsecond":
        return f"{row} ms" if row % 100 == 0 else ""
    return str(row) if row >= 0 else "?"


def label_width(labels: Sequence[str]) -> int:
    """The width of the labels and two blanks."""
    return max((len(label) for label in labels), default=0) + 3


def heat_lines(grid: Grid, times: Times, terminal: Terminal) -> Iterator[str]:
    """The rows, and the time axis below them."""
    levels = _levels(grid)
    if terminal.colour:
        yield from _blocks(levels, grid.labels)
    else:
        room = label_width(grid.labels) - 1
        for label, row in zip(grid.labels, levels, strict=True):
            yield f"{label:>{room}} " + "".join(_letter(level) for level in row).rstrip()
    yield axis(grid, times)


def axis(grid: Grid, times: Times) -> str:
    """Clock times below their columns."""
    indent, columns = label_width(grid.labels), grid.values.shape[1]
    line = [" "] * (indent + columns + 12)
    step = max(columns // max(columns // 20, 1), 1)
    end = 0
    for column in range(0, columns, step):
        at = grid.start_ns + round(column * grid.column_s * 1e9)
        text = times.clock(at, 0 if grid.column_s * step >= 1 else 2)
        if indent + column < end or column + len(text) > columns + 4:
            continue
        line[indent + column : indent + column + len(text)] = text
        end = indent + column + len(text) + 2
    return "".join(line).rstrip()


def scale(terminal: Terminal, words: tuple[str, str]) -> str:
    """The legend."""
    if terminal.colour:
        marks = "".join(f"\x1b[48;5;{colour}m " for colour in _RAMP) + "\x1b[0m"
    else:
        marks = _LETTERS
    return f" {words[0]} {marks} {words[1]}; blank: not sampled"


def marks_line(grid: Grid, marks: Sequence[tuple[int, str]]) -> str:
    """A line with a sign below each column that holds one of these times."""
    indent, columns = label_width(grid.labels), grid.values.shape[1]
    line = [" "] * (indent + columns)
    for time_ns, sign in marks:
        column = int((time_ns - grid.start_ns) / 1e9 / grid.column_s)
        if 0 <= column < columns and line[indent + column] == " ":
            line[indent + column] = sign[:1]
    return "".join(line).rstrip()


def fewer_rows(grid: Grid, alone: Collection[str] = (), most: int = _MOST_ROWS) -> Grid:
    """Join neighbouring rows into their mean; rows named in `alone` stay separate.

    >>> values = np.array([[1.0, np.nan], [3.0, np.nan], [0.0, 2.0], [4.0, 4.0]])
    >>> few = fewer_rows(Grid(values, ["0", "1", "2", "3"], 0, 1.0), {"2"}, 3)
    >>> few.labels, few.values.tolist()
    (['0-1', '2', '3'], [[2.0, nan], [0.0, 2.0], [4.0, 4.0]])
    """
    rows = len(grid.labels)
    if rows <= most:
        return grid
    separate = [label in alone for label in grid.labels]
    group_size = -(-(rows - sum(separate)) // max(most - sum(separate), 1))
    values, labels = [], []
    first = 0
    while first < rows:
        end = first + 1
        while not separate[first] and end < min(first + group_size, rows) and not separate[end]:
            end += 1
        part = grid.values[first:end]
        known = ~np.isnan(part)
        sums = np.where(known, part, 0.0).sum(axis=0)
        number = known.sum(axis=0)
        values.append(np.where(number > 0, sums / np.maximum(number, 1), np.nan))
        ends = grid.labels[first], grid.labels[end - 1]
        labels.append(ends[0] if end == first + 1 else f"{ends[0]}-{ends[1]}")
        first = end
    return grid._replace(values=np.array(values), labels=labels)


def _levels(grid: Grid) -> npt.NDArray[np.float64]:
    """0 to 1, NaN where nothing was sampled."""
    known = grid.values[~np.isnan(grid.values)]
    full = grid.full if grid.full is not None else float(known.max(initial=0.0))
    return np.clip(grid.values / full, 0.0, 1.0) if full > 0 else np.minimum(grid.values, 0.0)


def _step(level: float, steps: int) -> int:
    """Step 0 is for zero only."""
    return 0 if level <= 0 else 1 + min(int(level * (steps - 1)), steps - 2)


def _letter(level: float) -> str:
    return " " if level != level else _LETTERS[_step(level, len(_LETTERS))]


def _blocks(levels: npt.NDArray[np.float64], labels: Sequence[str]) -> Iterator[str]:
    room = label_width(labels) - 1
    for row in range(0, len(labels), 2):
        lower = levels[row + 1] if row + 1 < len(labels) else np.full(levels.shape[1], np.nan)
        pairs = zip(levels[row].tolist(), lower.tolist(), strict=True)
        yield f"{labels[row]:>{room}} " + "".join(_cells(pairs)) + "\x1b[0m"


def _cells(pairs: Iterator[tuple[float, float]]) -> Iterator[str]:
    before = ""
    for upper, lower in pairs:
        top, bottom = _colour(upper), _colour(lower)
        if top is None and bottom is None:
            style, sign = "\x1b[0m", " "
        elif top is None:
            style, sign = f"\x1b[0;38;5;{bottom}m", "▄"
        elif bottom is None:
            style, sign = f"\x1b[0;38;5;{top}m", "▀"
        else:
            style, sign = f"\x1b[38;5;{top};48;5;{bottom}m", "▀"
        yield sign if style == before else style + sign
        before = style


def _colour(level: float) -> int | None:
    return None if level != level else _RAMP[_step(level, len(_RAMP))]
