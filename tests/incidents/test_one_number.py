"""One fact, one number: every surface says the same of the same thing and seconds.

Over every recorded incident: the verdict, its JSON, `why`, the explorer's table and its tiles. The
numbers of the verdict are taken as they are published; what they are compared with is computed by
the other surfaces, each by its own way through the code.
"""

from __future__ import annotations

import re
from functools import cache, cached_property
from math import floor
from typing import Any

import numpy as np
import pytest

from lab.incident import Incident, incidents
from sexton.detect.detectors.cpu.saturated_core import BY_KIND, HELD, KERNEL_SHARE
from sexton.explain.why import explain as asked
from sexton.explorer.lanes.restarts import Builder as Restarts
from sexton.explorer.tiles.tables import TableColumns, TableSpan, number
from sexton.explorer.tiles.view import View
from sexton.model.finding import Evidence, Finding, Verdict
from sexton.model.lane import COLUMNS, Strip
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.unit import Unit
from sexton.model.why import Subject
from sexton.replay.signal_tables import table_signals
from sexton.replay.span import everything
from sexton.replay.span_reader import SpanReader
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.reports.json.why import why_json
from sexton.series.catalogue import CORE_SOFTIRQ, CORE_SYSTEM, CORE_USER
from sexton.series.cores import core_series
from sexton.store.recording import Recording

#: A tile holds half per cents.
TILE = 0.26


class Surfaces:
    """Everything that is said of one incident; each is made once."""

    def __init__(self, incident: Incident) -> None:
        self.incident = incident
        self.window = incident.replay.window
        self.diagnosis = incident.diagnosis
        self.json = diagnosis_json(self.diagnosis)
        self.view = View.open(incident.recording)
        assert self.view.span is not None
        self.start, self.end = self.view.span

    def finding(self, name: str) -> Finding:
        return self.diagnosis.by_id[name]

    def said(self, name: str, evidence: Evidence) -> None:
        """JSON and `why` give the number of the verdict."""
        why = why_json(asked(Subject("symptom", name), self.diagnosis, self.window))
        for findings in (self.json["findings"], why["findings"]):
            mine = [finding for finding in findings if finding["id"] == name]
            assert len(mine) == 1 or findings is not self.json["findings"]
            for finding in mine:
                values = [value["value"] for value in finding["evidence"]
                          if value["what"] == evidence.what]  # fmt: skip
                assert evidence.number in values

    def cells(self, lane: str, start: float, end: float) -> list[dict[str, str]]:
        """The explorer's table, a row as a dict."""
        table = self.view.table(lane, start, end)
        assert not table.left_out
        names = [heading.partition(" (")[0] for heading in table.headings]  # without units
        return [dict(zip(names, row, strict=True)) for row in table.rows]

    def seconds(self, lane: str) -> tuple[int, Strip]:
        """Every second of a lane, and the first column's number."""
        first = floor(self.start) // COLUMNS
        count = floor(self.end) // COLUMNS - first + 1
        return first * COLUMNS, self.view.strip(lane, 0, first, count)

    @cached_property
    def signals(self) -> dict[tuple[str, str], Any]:
        """What `why` compares, of the cores."""
        recording = Recording(self.incident.recording)
        reader = SpanReader(recording, everything(recording))
        found = table_signals(CoreTimes, reader, None)
        return {(signal.about, signal.name): signal for signal in found}


@cache
def surfaces(name: str) -> Surfaces:
    return Surfaces(next(incident for incident in incidents() if incident.name == name))


every_incident = pytest.mark.parametrize("name", [incident.name for incident in incidents()])


def percent(cell: str) -> float:
    return float(cell.removesuffix(" %"))


def tile_kernel(found: Surfaces, core: int) -> tuple[int, Any]:
    first, strip = found.seconds("cores")
    planes = strip.planes["peak"][:, strip.names.index(f"core {core}")].astype(float)
    planes[planes == 255] = np.nan
    return first, planes / 2


@every_incident
def test_a_core_that_was_held_has_one_share(name: str):
    found = surfaces(name)
    finding = found.finding("saturated_core")
    series = core_series(found.window)
    if finding.verdict is not Verdict.PRESENT or series is None:
        return
    (by_kind,) = (evidence for evidence in finding.evidence if evidence.what.endswith(BY_KIND))
    found.said("saturated_core", by_kind)
    core = int(finding.entities["core"][0])
    assert finding.start is not None
    assert finding.end is not None
    span = found.window.mono(finding.start), found.window.mono(finding.end)
    # The finding also counts the kernel time right before and after these steps.
    (run,) = (
        run
        for run in series.held(KERNEL_SHARE.value)
        if series.cores[run.row] == core and run.lasts(HELD.value)
        and run.start >= span[0] - 1e-3 and run.end <= span[1] + 1e-3
    )  # fmt: skip
    held = found.window.wall(run.start), found.window.wall(run.end)

    (row,) = (cell for cell in found.cells("cores", *held) if cell["core"] == f"core {core}")
    assert row["system"] == f"{by_kind.number:.1f} %"
    told = dict(re.findall(r"(\w+) (\d+) %", by_kind.value))
    for kind in ("user", "system", "softirq"):
        assert abs(percent(row[kind]) - int(told[kind])) <= 0.55

    # By step, as `why` has it: there a share is cut at 100 %.
    steps = slice(run.first, run.last + 1)
    given = series.given[run.row, steps]
    uncut = float(series.system[run.row, steps].sum() / given.sum()) * 100
    assert min(uncut, 100) == pytest.approx(by_kind.number, abs=0.01)
    signal = found.signals[f"core {core}", CORE_SYSTEM.help]
    value = signal.value[np.isin(signal.mono_s, series.end[steps])]
    cut = np.minimum(100 * series.system[run.row, steps] / given, 100)
    assert value == pytest.approx(cut, abs=1e-3)

    first, shares = tile_kernel(found, core)
    kernel = series.percent(series.kernel)[run.row]
    for step in range(run.first, run.last + 1):
        end = float(series.wall[step])
        start = end - float(series.end[step] - series.start[step])
        for second in range(floor(start + 0.5), floor(end + 0.5)):
            shown = min(np.nansum(shares[1:3, second - first]), 100)
            assert shown >= kernel[step] - 2 * TILE


@every_incident
def test_the_busiest_step_of_a_calm_node_is_the_peak_everywhere(name: str):
    found = surfaces(name)
    finding = found.finding("saturated_core")
    if finding.verdict is not Verdict.ABSENT:
        return
    (worst,) = finding.evidence
    found.said("saturated_core", worst)
    assert worst.number is not None
    core = int(re.findall(r"core (\d+)", finding.summary)[0])
    rows = found.cells("cores", found.start, found.end)
    assert rows[0]["core"] == f"core {core}"
    assert rows[0]["peak in the kernel"] == f"{worst.number:.1f} %"
    zero = np.zeros(1, np.float32)
    system, softirq = (
        found.signals[f"core {core}", metric.help].value if (f"core {core}", metric.help)
        in found.signals else zero for metric in (CORE_SYSTEM, CORE_SOFTIRQ)
    )  # fmt: skip
    assert np.nanmax(system + softirq) == pytest.approx(worst.number, abs=1e-3)
    _, shares = tile_kernel(found, core)
    assert np.nanmax(shares[1] + shares[2]) == pytest.approx(worst.number, abs=2 * TILE)


@every_incident
def test_every_core_has_one_share_of_the_whole_recording(name: str):
    found = surfaces(name)
    series = core_series(found.window)
    if series is None:
        return
    shares = series.over(found.window.start_mono, found.window.end_mono)
    rows = {cell["core"]: cell for cell in found.cells("cores", found.start, found.end)}
    assert rows.keys() == {f"core {core}" for core in shares}
    for core, share in shares.items():
        row = rows[f"core {core}"]
        cells = (row["user"], row["system"], row["softirq"], row["I/O wait and steal"])
        assert cells == tuple(f"{value:.1f} %" for value in share[:4])
        at = series.cores.index(core)
        signal = found.signals.get((f"core {core}", CORE_USER.help))
        if signal is not None:
            assert (signal.mono_s == series.end).all()
            cut = np.minimum(100 * series.user[at] / series.given[at], 100)
            assert signal.value == pytest.approx(cut, abs=1e-3, nan_ok=True)


@every_incident
def test_dying_cgroups_are_one_number(name: str):
    found = surfaces(name)
    finding = found.finding("zombie_memcgs")
    counted = [item for item in finding.evidence if item.what.startswith("dying memory cgroups")]
    assert counted or finding.verdict is Verdict.UNKNOWN
    for evidence in counted[:1]:
        found.said("zombie_memcgs", evidence)
        assert evidence.number is not None
        rows = found.cells("memcgs", found.end - 60, found.end + 1)
        known = [row["dying"] for row in rows if row["dying"] != "not known"]
        assert known[-1] == number(evidence.number)
        _, strip = found.seconds("memcgs")
        line = strip.planes["mean"][0, strip.names.index("dying")]
        assert line[~np.isnan(line)][-1] == evidence.number


@every_incident
def test_restarts_of_a_unit_are_one_number(name: str):
    found = surfaces(name)
    finding = found.finding("crash_looping_unit")
    if finding.verdict is not Verdict.PRESENT:
        return
    unit = finding.entities["unit"][0]
    (evidence,) = (item for item in finding.evidence if item.what == f"restarts of {unit}")
    found.said("crash_looping_unit", evidence)
    recent = int(re.findall(r"([\d,]+) in this window", evidence.value)[0].replace(",", ""))
    found.view.table("restarts", found.start, found.end)
    builder = found.view._built["restarts"].builder
    assert isinstance(builder, Restarts)
    # One column over all of it: its mean, times the time that is known, is what was counted.
    level = next(index for index in range(7, 13) if floor(found.start) >> index
                 == floor(found.end) >> index)  # fmt: skip
    columns = TableColumns(floor(found.start) >> level, 1, level)
    span = TableSpan(Recording(found.incident.recording), found.start, found.end)
    mean, _ = builder.values(span, columns)
    at = [line for line, _ in builder.shown()].index((unit,))
    known, unseen = 0.0, 0.0
    for piece in found.window.columns(Unit, ("restarts",), lambda key: key[0] == unit):
        moved, follows = np.diff(piece.values["restarts"][0]), piece.follows[1:]
        known += np.diff(piece.mono)[~np.isnan(moved) & follows].sum()
        unseen += moved[~follows].sum()  # readings are missing: counted, and no rate is known
    assert float(mean[at, 0]) / 60 * known + unseen == pytest.approx(recent, abs=0.01)


@every_incident
def test_resets_of_a_nic_are_one_number(name: str):
    found = surfaces(name)
    finding = found.finding("nic_resets")
    logged = [
        evidence for evidence in finding.evidence if evidence.what == "resets in the kernel log"
    ]
    for evidence in logged:
        found.said("nic_resets", evidence)
        reset, after = 0, float("-inf")
        while (mark := found.view.found("reset", after)) is not None:
            reset, after = reset + 1, mark.time
        assert reset == evidence.number
        nics = finding.entities.get("nic", ())[:1]
        for nic in nics if finding.verdict is Verdict.PRESENT else ():
            why = asked(Subject("nic", nic), found.diagnosis, found.window)
            assert len(why.occasions.moments) == evidence.number


@every_incident
def test_the_longest_wait_of_a_softirq_is_one_number(name: str):
    found = surfaces(name)
    finding = found.finding("starved_napi")
    waits = [
        (evidence, match[1])
        for evidence in finding.evidence
        if (match := re.match(r"(?:the longest wait of|core \d+:) (NET_[RT]X)\b", evidence.what))
        and evidence.number is not None
    ]
    if not waits:
        return
    longest, vector = max(waits, key=lambda wait: wait[0].number or 0.0)
    found.said("starved_napi", longest)
    assert longest.number is not None
    column = f"{vector} longest"
    peaks = [
        float(re.findall(r"[\d.,e+-]+", row[column])[-1].replace(",", ""))
        for row in found.cells("softirq_wait", found.start, found.end)
        if row[column] != "not known"
    ]
    expected = float(number(1000 * longest.number).replace(",", ""))
    assert max(peaks) == pytest.approx(expected, rel=2e-3)  # three digits are shown
    _, strip = found.seconds("softirq_wait")
    line = strip.planes["peak"][0, strip.names.index(column)]
    assert np.nanmax(line) == pytest.approx(1000 * longest.number, rel=1e-5)
