"""Events: what the kernel and the services said, alarms, marks, restarts, boots.

Known lines of the kernel log and of services, alarms that made the recorder keep the minutes around
them, marks by operators, unit restarts, and notes of the recorder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from sexton.detect import resets
from sexton.detect.custom_patterns import owners_severity
from sexton.detect.kernel_log import Line
from sexton.detect.nics import namer
from sexton.detect.registry import all_detectors
from sexton.explorer.tiles.build import MOST_S, Clock, Part
from sexton.explorer.tiles.registry import Drawing, lane
from sexton.explorer.tiles.tables import TableSpan
from sexton.explorer.tiles.tables import clock as clock_words
from sexton.model.finding import Severity
from sexton.model.lane import Marked, Table
from sexton.model.row import Row
from sexton.model.rows.event import KernelEvent, ServiceEvent
from sexton.model.rows.net import Nic
from sexton.model.rows.recorder import Alarm, Mark, RecorderNote
from sexton.model.rows.unit import RestartMark
from sexton.model.text import printable, shorten
from sexton.sources.kmsg.catalogue import severities
from sexton.store.arrays import numbers, values
from sexton.store.schema import MONO, grouped, rows_of, texts_of

#: Rows of one table; a flooded log adds nothing after these.
MOST = 50_000
#: Characters of a line.
_WIDTH = 400
#: Tenths of a second within which the same text is the same line: each reader computes its time
#: again. An alarm repeats the text of its line; a recorder that waits for a core reads the line up
#: to 30 s later and takes as long again to raise it.
_SAME, _RAISED = 1, 600


@cache
def _lanes() -> dict[str, str]:
    """Lanes by kind of event: those of the detectors that use them."""
    return {kind: check.lane for check in all_detectors() for kind in check.events}


def _made(time: float, kind: str, text: str, severity: Severity, entity: str) -> Marked:
    return Marked(
        time,
        None,
        printable(kind),
        shorten(printable(text), _WIDTH),
        severity.value,
        shorten(printable(entity), 120),
        _lanes().get(kind, ""),
    )


def _kernel(row: KernelEvent, read: float, clock: Clock) -> Marked:
    when = clock.at(row.mono_us / 1e6) if row.mono_us is not None else row.wall_s
    when = read if when is None else when
    return _made(when, row.family, row.message, _severity(row), _about(row))


def _severity(row: KernelEvent | ServiceEvent) -> Severity:
    """The owner's patterns store theirs with the line; those of another version are unknown."""
    return owners_severity(row) or severities().get(row.pattern, Severity.WARNING)


def _about(row: KernelEvent | ServiceEvent) -> str:
    for name, words in (("nic", "{}"), ("cpu", "core {}"), ("unit", "{}")):
        if name in row.fields:
            return words.format(row.fields[name])
    return ""


def _service(row: ServiceEvent, read: float, _clock: Clock) -> Marked:
    when = read if row.wall_s is None else row.wall_s
    text = f"{row.speaker}: {row.message}"
    return _made(when, row.family, text, _severity(row), _about(row))


def _alarm(row: Alarm, read: float, _clock: Clock) -> Marked:
    about = "" if row.about.isdecimal() else row.about  # a bare count names nothing
    return _made(read, row.kind, row.detail or row.about, Severity.WARNING, about)


def _mark(row: Mark, read: float, _clock: Clock) -> Marked:
    return _made(read, "mark", row.text, Severity.INFO, "")


def _note(row: RecorderNote, read: float, _clock: Clock) -> Marked:
    return _made(read, "note", f"{row.kind}: {row.detail}", Severity.INFO, "the recorder")


def _restart(row: RestartMark, _read: float, _clock: Clock) -> Marked:
    text = f"{row.unit} restarted ({_ordinal(row.counter)} time)"
    return _made(row.wall_s, "restart", text, Severity.INFO, row.unit)


def _ordinal(number: int) -> str:
    """An ordinal number.

    >>> [_ordinal(each) for each in (1, 2, 3, 11, 44, 1_012, 1_021)]
    ['1st', '2nd', '3rd', '11th', '44th', '1,012th', '1,021st']
    """
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if number % 100 in (11, 12, 13) else endings.get(number % 10, "th")
    return f"{number:,}{ending}"


_TABLES: tuple[tuple[type[Row], Callable[[Any, float, Clock], Marked]], ...] = (
    (KernelEvent, _kernel),
    (ServiceEvent, _service),
    (Mark, _mark),  # before the alarm that is raised for it
    (Alarm, _alarm),
    (RestartMark, _restart),
    (RecorderNote, _note),
)


@lane(kind="marks", draws="", order=0, needs=tuple(kind for kind, _ in _TABLES))
class Builder:
    """Builds one list of all events, sorted by time."""

    comes_late = False

    def __init__(self) -> None:
        self._boot = ""
        self._last: dict[type[Row], float] = {}
        self._seen: set[tuple[str, int]] = set()
        self._near = 0
        self._found: list[Marked] = []
        #: Lines about resets, each with its mark.
        self._lines: list[tuple[Line, Marked]] = []
        self._nics: dict[str, Nic] = {}
        self._number: dict[type[Row], int] = {}
        self.problems: list[str] = []
        self._sorted = True

    def ahead(self, part: Part) -> None:
        """Nothing: there are few."""

    def feed(self, part: Part) -> None:
        segment = part.book.segment
        if segment.boot_id != self._boot:
            if self._boot:
                time = segment.start[1]
                self._near = _SAME
                self._add(_made(time, "boot", "the node rebooted", Severity.WARNING, ""))
            self._boot, self._last = segment.boot_id, {}
        self._feed_nics(part)
        for kind, make in _TABLES:
            if segment.rows(kind) and segment.end[0] > self._last.get(kind, -np.inf):
                self._near = _RAISED if kind is Alarm else _SAME
                for mono, row in self._rows(part, kind):
                    made = make(row, part.clock.at(mono), part.clock)
                    if not (abs(made.time) < MOST_S and self._add(made)):  # NaN is no time
                        continue
                    if isinstance(row, KernelEvent) and row.family in resets.FAMILIES:
                        self._lines.append((Line(row, made.time, None), made))

    def _rows(self, part: Part, kind: type[Row]) -> Iterator[tuple[float, Row]]:
        """Rows that were not taken yet, with the time of their reading."""
        found = part.book.segment.table(kind, coded=texts_of(kind))
        if found is None or not found.num_rows:
            return
        since = self._last.get(kind, -np.inf)
        mono = numbers(found.column(MONO))
        if mono.max() <= since:
            return
        self._last[kind] = float(mono.max())
        room = MOST - self._number.get(kind, 0)
        if room <= 0:
            return
        if found.num_rows > room:
            found = found.slice(0, room)
            self.problems.append(f"more than {MOST:,} rows of {kind.__name__}: not all are shown")
        self._number[kind] = self._number.get(kind, 0) + found.num_rows
        places, columns = grouped(kind, found)
        rows = rows_of(kind, columns)
        for at, (start, end) in places.items():
            if at > since:
                for row in rows[start:end]:
                    yield at, row

    def _feed_nics(self, part: Part) -> None:
        """Some lines of a reset name the interface, others only its bus address."""
        if not part.book.segment.rows(Nic):
            return
        columns = ("name", "physical", "bus_address")
        found = part.book.segment.table(Nic, columns)
        if found is None or not {*columns} <= {*found.column_names}:
            return
        names, buses = (values(found.column(column)) for column in ("name", "bus_address"))
        physical = numbers(found.column("physical"), False).tolist()
        for name, real, bus in zip(names, physical, buses, strict=True):
            if real:
                self._nics[name] = Nic(name, True, None, None, bus, None)

    def _add(self, made: Marked) -> bool:
        """Whether it is new."""
        # A restarted recorder reads the same log lines again.
        tenth = round(made.time * 10)
        near = range(tenth - self._near, tenth + self._near + 1)
        if any((made.text, index) in self._seen for index in near):
            return False
        self._found.append(made)
        self._seen.add((made.text, tenth))
        self._sorted = False
        return True

    def forget(self, before: float) -> None:
        """Drops log lines as well: a ring buffer may hold weeks of them."""
        self._found = [mark for mark in self._found if mark.time >= before]
        self._lines = [pair for pair in self._lines if pair[1].time >= before]
        self._seen = {key for key in self._seen if key[1] >= before * 10}

    def settle(self) -> None:
        if not self._sorted:
            self._found.sort(key=lambda mark: (mark.time, mark.kind))
            self._sorted = True

    def names(self, _lane: str) -> tuple[str, ...]:
        return tuple(sorted({mark.kind for mark in self._found}))

    def draw(self, _lane: str, _level: int, _first: int, count: int) -> Drawing:
        """Nothing: marks are a list, not columns."""
        none = np.zeros((1, 0, count * 256), np.float32)
        return Drawing((), ("value",), {"mean": none, "peak": none})

    def marks(self) -> list[Marked]:
        return self._found

    def resets(self) -> list[Marked]:
        """Every reset in the log, with the time of its first line and the text of the worst."""
        ordered = sorted(self._lines, key=lambda pair: pair[1].time)
        marks = {id(line): mark for line, mark in ordered}
        lines = [line for line, _ in ordered]
        found = []
        for burst in resets.grouped(lines, namer(self._nics.values(), lines)):
            mine = [marks[id(line)] for line in burst.lines]
            worst = max(mine, key=lambda mark: Severity(mark.severity).rank)
            about = printable(burst.name) if burst.name else worst.entity
            found.append(worst._replace(time=mine[0].time, entity=about))
        return sorted(found, key=lambda mark: mark.time)

    def preload(self, span: TableSpan) -> None:
        """Nothing: the table is made from memory."""

    def table(self, _lane: str, span: TableSpan, most: int) -> Table:
        inside = [mark for mark in self._found if span.start <= mark.time < span.end]
        rows = tuple(
            (clock_words(mark.time), mark.kind, mark.severity, mark.entity, mark.text)
            for mark in inside[:most]
        )
        headings = ("time", "kind", "severity", "about", "what")
        return Table(headings, rows, max(len(inside) - most, 0))

    @property
    def bytes(self) -> int:
        return 400 * len(self._found)
