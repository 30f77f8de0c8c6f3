"""What every surface of Sexton says about a recorded incident, for `test_one_number`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache, cached_property
from math import floor
from typing import Any

import numpy as np
import pytest

from lab.incident import Incident, incidents, replayed
from sexton.cure.measures import measure
from sexton.explain.why import explain as asked
from sexton.explorer.tiles.view import View
from sexton.model.lane import COLUMNS, TOP, Marked, Strip
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus, CgroupThrottle
from sexton.model.rows.cpu import CoreTimes, SoftirqWait
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.net import Nic
from sexton.model.rows.unit import Unit
from sexton.model.why import Subject, Why
from sexton.model.window import Window
from sexton.record.triggers import Raised, Triggers
from sexton.replay.signal_tables import table_signals
from sexton.replay.span import Span, everything
from sexton.replay.span_reader import SpanReader
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.reports.text.verdict import verdict_text
from sexton.reports.text.why import why_text
from sexton.series.cores import CoreSeries, core_series
from sexton.store.recording import Recording

#: Two clocks are read one after the other.
CLOCK_S = 0.02
ALARMED: tuple[type[Row], ...] = (Nic, CoreTimes, KernelEvent, CgroupCensus, SoftirqWait)


class Surfaces:
    """Everything that is said of one incident; each is made once."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self.window = incident.replay.window
        self.diagnosis = incident.diagnosis
        self.json: dict[str, Any] = json.loads(json.dumps(diagnosis_json(self.diagnosis)))
        self.text = " ".join(verdict_text(self.diagnosis, 100).split())
        self.view = View.open(incident.recording)
        assert self.view.span is not None
        self.start, self.end = self.view.span

    def finding(self, name: str) -> dict[str, Any]:
        (found,) = (finding for finding in self.json["findings"] if finding["id"] == name)
        return dict(found)

    def was_read(self, finding: dict[str, Any]) -> bool:
        """Whether no reading is missing in its time: what counters around a gap tell is said of the
        gap alone, while alarms, the explorer and `fix` measure what was read."""
        series = core_series(self.window)
        if series is None or finding["verdict"] != "present" or finding["start"] is None:
            return True
        span = (self.window.mono(finding[edge]) for edge in ("start", "end"))
        system = series.system[:, series.times.inside(*span)]
        return not np.isnan(system).all(axis=0).any()

    def evidence(self, finding: dict[str, Any], wanted: str) -> list[dict[str, Any]]:
        """What other surfaces must say, too."""
        return evidence_of(finding, wanted) if self.was_read(finding) else []

    def cells(self, lane: str, start: float, end: float) -> list[dict[str, str]]:
        """The explorer's table, a row as a dict."""
        return list(rows_of(self.view.table(lane, start, end)._asdict()))

    def seconds(self, lane: str) -> tuple[int, Strip]:
        """Every second of a lane, and the first column's number."""
        first = floor(self.start) // COLUMNS
        count = floor(self.end) // COLUMNS - first + 1
        return first * COLUMNS, self.view.strip(lane, 0, first, count)

    def line(self, lane: str, name: str, plane: str = "peak") -> Any:
        """Every second of one of its lines."""
        _, strip = self.seconds(lane)
        return strip.planes[plane][0, strip.names.index(name)]

    def marked(self, kind: str) -> list[Marked]:
        """Where "next spike" and "next reset" go."""
        found: list[Marked] = []
        while (mark := self.view.found(kind, found[-1].time if found else 0.0)) is not None:
            found.append(mark)
        return found

    def moments(self, kind: str, name: str) -> list[float]:
        """When `why` says that it happened (UNIX seconds)."""
        return [moment.wall_s for moment in self.why(kind, name).occasions.moments]

    def why(self, kind: str, name: str) -> Why:
        return asked(Subject(kind, name), self.diagnosis, self.window)

    def why_of(self, finding: dict[str, Any]) -> str:
        """What `why` says about the first thing that a finding is about."""
        kind, names = next(iter(finding["entities"].items()))
        why = self.why(kind, names[0])
        assert finding["id"] in why.findings
        return " ".join(why_text(why, 100).split())

    def over(self, start: float, end: float) -> Window:
        """Some seconds of the recording alone (UNIX seconds)."""
        span = everything(Recording(self.incident.recording))
        edges = ((self.window.mono(at), at) for at in (start - CLOCK_S, end + CLOCK_S))
        return replayed(self.incident.recording, Span(span.boot_id, *edges)).window

    @cached_property
    def alarms(self) -> list[Raised]:
        """What the recorder would have raised, reading by reading."""
        triggers = Triggers()
        read = [
            (batch.mono_s, at, kind, batch)
            for at, kind in enumerate(ALARMED)
            for batch in self.window.batches(kind) or ()
        ]
        return [
            raised
            for _, _, kind, batch in sorted(read, key=lambda item: item[:2])
            for raised in triggers.feed(kind, batch)
        ]

    @cached_property
    def measures(self) -> dict[str, float]:
        """What `fix` compares, of the whole recording."""
        units = self.finding("crash_looping_unit")["entities"].get("unit", ())
        return measure(self.window, units=units)

    def mean(
        self, table: type[Row], name: tuple[str, str], start: float, end: float
    ) -> tuple[float, float]:
        """The mean of a signal over the known steps that are mostly in a span, and their seconds;
        0 of 0 if it never moved."""
        signal, read = self.signals.get(name), self.window.bounds_of(table)
        if signal is None or read is None:
            return 0.0, 0.0
        edges = self.window.mono(start), self.window.mono(end)
        lasts = np.diff(signal.mono_s, prepend=read[0])
        middle = signal.mono_s - lasts / 2
        inside = (middle > edges[0]) & (middle < edges[1]) & ~np.isnan(signal.value)
        spent = float(lasts[inside].sum())
        return float((signal.value * lasts)[inside].sum()) / spent, spent

    @cached_property
    def signals(self) -> dict[tuple[str, str], Any]:
        """What `why` compares, of these tables."""
        recording = Recording(self.incident.recording)
        reader = SpanReader(recording, everything(recording))
        return {
            (signal.about, signal.name): signal
            for table in (CoreTimes, Unit, CgroupThrottle, Pressure, VmCounter)
            for signal in table_signals(table, reader, None)
        }


def rows_of(table: dict[str, Any]) -> Iterator[dict[str, str]]:
    names = [heading.partition(" (")[0] for heading in table["headings"]]  # without units
    yield from (dict(zip(names, row, strict=True)) for row in table["rows"])


@cache
def surfaces(name: str) -> Surfaces:
    return Surfaces(next(incident for incident in incidents() if incident.name == name))


every_incident = pytest.mark.parametrize("name", [incident.name for incident in incidents()])


def figure(text: str) -> float:
    """The first number in a text."""
    return float(re.findall(r"-?[\d,]+\.?\d*(?:e[+-]?\d+)?", text)[0].replace(",", ""))


def evidence_of(finding: dict[str, Any], wanted: str) -> list[dict[str, Any]]:
    return [item for item in finding["evidence"] if re.fullmatch(wanted, item["what"])]


def tile_kernel(found: Surfaces, core: int) -> tuple[int, Any]:
    """System and softirq time of every second as it is drawn, in per cent."""
    first, strip = found.seconds("cores")
    planes = strip.planes["peak"][:, strip.names.index(f"core {core}")].astype(float)
    planes[planes == 255] = np.nan
    return first, np.minimum((planes[1] + planes[2]) / 2, 100)


def mean_of_all(found: Surfaces, lane: str) -> tuple[Strip, int] | None:
    """The tile with all of it in one column, and that column; `None` if it lies on the border
    between two of the longest columns."""
    for level in range(TOP + 1):
        column = floor(found.start) >> level
        if column == floor(found.end) >> level:
            return found.view.strip(lane, level, column // COLUMNS, 1), column % COLUMNS
    return None


def drawn_as(series: CoreSeries, row: int, second: int) -> float:
    """What a second should show: the step that its middle lies in, or one that came so early that
    no second's middle lies in it, where that is higher; NaN if those are unknown."""
    start, end = series.wall - (series.end - series.start), series.wall
    covers = (start < second + 0.5) & (end >= second + 0.5)
    early = np.floor(start + 0.5) == np.floor(end + 0.5)
    covers |= early & (np.floor((start + end) / 2) == second)
    return float(np.fmax.reduce(series.percent(series.kernel)[row, covers], initial=np.nan))
