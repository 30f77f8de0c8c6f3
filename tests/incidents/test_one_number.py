"""One fact, one number: every surface says the same of the same thing and seconds.

Over every recorded incident, of a core that was held, dying cgroups and who left them, restarts,
resets, waits, throttling, reclaim, faults, pressure, the mean of all cores and what speaks against
a cause: the verdict's text, its JSON, the explorer's table, tiles and marks, the signals and
moments of `why`, the data of the HTML report, alarms, the measures of `fix` and the numbers of
`top`. What is published in JSON is compared with what the others compute, each by its own way
through the code, as exactly as each of them shows it.

Not every surface states every fact. `why` compares neither the number of dying cgroups nor the
longest wait with quiet times (`Metric.compared`): its text repeats the finding, and that is
compared. `fix` measures neither waits nor faults nor pressure. `top` shows the last step of a core,
the last census, the driver's counters and the lines of the kernel log, but neither waits nor
restarts. The driver of the recorded nodes counts no resets, so its counters are compared in a made
recording. The pages of all incidents are made without flame graphs and tiles, which take seconds.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from itertools import pairwise
from math import floor, inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.incident import Incident, incidents
from lab.synthetic import write
from sexton.cli.load import nic_loads, top_json
from sexton.cli.screen import frame
from sexton.cure.measures import CORE, DYING, RECLAIM, RESETS, RESTARTS, THROTTLED, measure
from sexton.detect.deaths import deaths
from sexton.detect.detectors.cgroups.crash_looping_unit import detect as crash_looping_unit
from sexton.detect.detectors.cgroups.zombie_memcgs import detect as zombie_memcgs
from sexton.detect.detectors.cpu.quota_throttling import stopped
from sexton.detect.growth import counts
from sexton.detect.ledger import suspects
from sexton.detect.owners import TRACED, owners
from sexton.detect.resets import ONE_RESET
from sexton.detect.stems import join, path_stem, split, unit_of
from sexton.detect.waits import WAIT
from sexton.explain.event_times import occasions
from sexton.explain.held import dying_share
from sexton.explain.links.cgroups.crash_loop_leaves_zombies import dying_in
from sexton.explorer.files import incident as incident_file
from sexton.explorer.files.incident import page_data, saturated_in
from sexton.explorer.lanes.cores import Builder as Cores
from sexton.explorer.lanes.memcgs import MOST
from sexton.explorer.lanes.restarts import Builder as Restarts
from sexton.explorer.tiles.tables import TableColumns, TableSpan, number
from sexton.model.finding import Verdict
from sexton.model.rows.cgroup import CgroupCensus, CgroupThrottle
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.unit import RestartMark, ServiceManager, Unit
from sexton.model.text import seconds as duration
from sexton.model.why import Subject
from sexton.model.window import Window
from sexton.reports.text.zombies import tally, zombies_json
from sexton.series.catalogue import CORE_SOFTIRQ, CORE_SYSTEM, CORE_USER, UNIT_RESTARTS
from sexton.series.cores import all_cores, core_series
from sexton.series.rates import steps_of
from sexton.store.recording import Recording
from tests.incidents.surfaces import (
    CLOCK_S,
    Surfaces,
    drawn_as,
    every_incident,
    evidence_of,
    figure,
    mean_of_all,
    rows_of,
    surfaces,
    tile_kernel,
)
from tests.support.synthetic import INCIDENT, small
from tests.support.windows import EPOCH, make_window

#: A tile holds half per cents, of system time and of softirq time.
TILE = 0.52
#: Half of the last digit: of "8.7 s", of "83 %" and of "83.4 %".
TENTH, WHOLE, SHARE = 0.0501, 0.501, 0.0501
#: A mean is rounded as a second, as two readings of a second, and as a column; a weight to 0.01 s.
TILE_MEAN = 0.76
#: Of weights in hundredths of a second.
WEIGHTS = 0.1


@every_incident
def test_a_core_that_was_held_has_one_length_and_one_share(name: str):
    found = surfaces(name)
    finding = found.finding("saturated_core")
    series = core_series(found.window)
    if finding["verdict"] != "present" or not found.was_read(finding):
        return
    assert series is not None
    start, end = finding["start"], finding["end"]
    core = int(finding["entities"]["core"][0])
    (by_kind,) = evidence_of(finding, f"core {core} by kind")
    (held,) = evidence_of(finding, rf"core {core} in the kernel(, \d+ times)?")
    lasted, share = held["value"], by_kind["value"]

    # One length: its span, its text, the summary, the story and the table of the verdict.
    assert end - start == pytest.approx(lasted, abs=CLOCK_S)
    assert figure(held["text"]) == pytest.approx(lasted, abs=TENTH)
    told = " ".join([finding["summary"], *found.json["story"], found.text])
    said = re.findall(rf"core {core}(?: \([^)]*\))? was held in [a-z ]+ for ([\d.]+ s)", told)
    said += re.findall(rf"core {core} in the kernel(?:, \d+ times)? < 0.1 s ([\d.]+ s)", found.text)
    assert len(said) >= 3
    assert set(said) == {duration(lasted)}

    # The alarm at its last reading.
    of_core = [alarm for alarm in found.alarms if alarm.kind == "held_core"
               and alarm.about == f"core {core}"]  # fmt: skip
    ends = [found.window.wall(alarm.mono_s) for alarm in of_core]
    (last,) = (alarm for alarm, at in zip(of_core, ends, strict=True) if abs(at - end) < CLOCK_S)
    assert figure(last.detail.partition(" for ")[2]) == pytest.approx(lasted, abs=TENTH)

    # The spike of the explorer, the moments of `why`, what the report opens on.
    (spike,) = (mark for mark in found.marked("spike") if abs(mark.time - start) < CLOCK_S)
    assert spike.end == pytest.approx(end, abs=CLOCK_S)
    assert figure(spike.text.partition(" for ")[2]) == pytest.approx(lasted, abs=TENTH)
    assert min(abs(at - end) for at in found.moments("core", str(core))) < CLOCK_S
    report = saturated_in(found.diagnosis)
    assert report is not None
    assert (report.part, report.cores[0]) == (pytest.approx((start, end)), core)

    # One share: the text of the evidence, the table, what `fix` measures of these seconds.
    kinds = dict(re.findall(r"(\w+) (\d+) %", by_kind["text"]))
    assert int(kinds["system"]) == pytest.approx(share, abs=WHOLE)
    (row,) = (row for row in found.cells("cores", start, end) if row["core"] == f"core {core}")
    assert figure(row["system"]) == pytest.approx(share, abs=SHARE)
    for kind in ("user", "softirq"):
        assert figure(row[kind]) == pytest.approx(int(kinds[kind]), abs=WHOLE + SHARE)
    measured = measure(found.over(start, end), (core,))
    kernel = figure(row["system"]) + figure(row["softirq"])
    assert measured[CORE.format(core)] == pytest.approx(kernel, abs=2 * SHARE)

    # By step: the signals of `why`, what `top` would have shown, and every second of the tile.
    at = series.cores.index(core)
    mono = found.window.mono(start), found.window.mono(end)
    steps = np.flatnonzero((series.end > mono[0] + CLOCK_S) & (series.end < mono[1] + CLOCK_S))
    spent = 0.0
    for step in steps.tolist():
        values = [
            float(signal.value[signal.mono_s == series.end[step]][0]) if signal is not None else 0.0
            for signal in (found.signals.get((f"core {core}", metric.help))
                           for metric in (CORE_USER, CORE_SYSTEM, CORE_SOFTIRQ))
        ]  # fmt: skip
        spent += values[1] * float(series.given[at, step])
        edges = (float(series.start[step]), float(series.end[step]))
        (shown,) = (
            load for load in top_json(Window({CoreTimes: _two(found.window, *edges)}))["cores"]
            if load["core"] == core
        )  # fmt: skip
        now = [100 * shown[kind] for kind in ("user", "system", "softirq")]
        assert now == pytest.approx(values, abs=0.01)
    # A tick that is counted a step late is cut there, at 100 %, and not over all of them.
    system, given = series.system[at, steps], series.given[at, steps]
    late = 100 * float(np.maximum(system - given, 0).sum() / given.sum())
    every = 100 * float(system.sum() / given.sum())
    assert share == pytest.approx(min(every, 100), abs=1e-3)
    assert spent / float(given.sum()) == pytest.approx(every - late, abs=0.01)
    first, tile = tile_kernel(found, core)
    inside = range(floor(start + 0.5), floor(end + 0.5))
    for second in (inside[0] - 1, *inside, inside[-1] + 1):
        # Around it the readings may be missing: then both must say so.
        drawn = drawn_as(series, at, second)
        around = second not in inside
        assert tile[second - first] == pytest.approx(drawn, abs=TILE, nan_ok=around)


def _two(window: Window, start: float, end: float) -> list[Any]:
    """The readings at both ends of a step."""
    return [batch for batch in window.between(CoreTimes, start, end)
            if start <= batch.mono_s <= end]  # fmt: skip


@every_incident
def test_the_busiest_step_of_a_calm_node_is_the_peak_everywhere(name: str):
    found = surfaces(name)
    finding = found.finding("saturated_core")
    if finding["verdict"] != "absent":
        return
    (worst,) = finding["evidence"]
    share = worst["value"]
    core = int(re.findall(r"core (\d+)", finding["summary"])[0])
    assert f"core {core}, {share:.0f} %" in finding["summary"]
    rows = found.cells("cores", found.start, found.end)
    assert rows[0]["core"] == f"core {core}"
    assert figure(rows[0]["peak in the kernel"]) == pytest.approx(share, abs=SHARE)
    parts = [
        found.signals[f"core {core}", metric.help].value
        for metric in (CORE_SYSTEM, CORE_SOFTIRQ) if (f"core {core}", metric.help) in found.signals
    ]  # fmt: skip
    assert np.nanmax(sum(parts)) == pytest.approx(share, abs=1e-3)
    _, tile = tile_kernel(found, core)
    assert np.nanmax(tile) == pytest.approx(share, abs=TILE)
    assert [alarm for alarm in found.alarms if alarm.kind == "held_core"] == []
    spikes = [figure(mark.text.partition(" kernel ")[2]) for mark in found.marked("spike")]
    assert max(spikes, default=0) == pytest.approx(share if spikes else 0, abs=WHOLE)
    assert bool(spikes) == (share >= 45)


@every_incident
def test_every_core_has_one_share_of_the_whole_recording(name: str):
    found = surfaces(name)
    series = core_series(found.window)
    if series is None:
        return
    shares = series.over(found.window.start_mono, found.window.end_mono)
    rows = {cell["core"]: cell for cell in found.cells("cores", found.start, found.end)}
    assert rows.keys() == {f"core {core}" for core in shares}
    measured = measure(found.window, shares)
    for core, share in shares.items():
        row = rows[f"core {core}"]
        cells = (row["user"], row["system"], row["softirq"], row["I/O wait and steal"])
        assert cells == tuple(f"{value:.1f} %" for value in share[:4])
        assert measured[CORE.format(core)] == pytest.approx(share.kernel)

    # The picture of all of it. A tick that is counted a step late is cut in each step of a tile.
    drawn = mean_of_all(found, "cores")
    if drawn is None:
        assert name in ("oom_job-6.1-v2", "zombies_only-5.10-v1")
        return
    strip, column = drawn
    kinds = (series.user, series.system, series.softirq, series.wait)
    for row, core in enumerate(series.cores):
        if core not in shares:
            continue
        shown = strip.planes["mean"][:, strip.names.index(f"core {core}"), column] / 2
        for at, kind in enumerate(kinds):
            late = float(np.nansum(np.maximum(kind[row] - series.given[row], 0)))
            low = shares[core][at] - 100 * late / shares[core].given_s
            assert low - TILE_MEAN <= shown[at] <= shares[core][at] + TILE_MEAN
    strip = found.view.strip("average", strip.level, strip.first, 1)
    average = all_cores(series).over(found.window.start_mono, found.window.end_mono)[-1]
    for busy in evidence_of(found.finding("cpu_pressure"), "all cores busy"):
        if found.finding("cpu_pressure")["verdict"] == "absent":
            assert busy["value"] == pytest.approx(average.busy + average.wait)
    line = strip.planes["mean"][0, :, column]
    builder = found.view._built["cores"].builder
    assert isinstance(builder, Cores)
    columns = TableColumns(floor(found.start) >> strip.level, 1, strip.level)
    span = TableSpan(Recording(found.incident.recording), found.start, found.end)
    mean, _ = builder.average.values(span, columns)
    assert mean[:, 0] == pytest.approx(average[:3], abs=0.01)
    assert line == pytest.approx(mean[:, 0], abs=WEIGHTS)


@every_incident
def test_dying_cgroups_are_one_number(name: str):
    found = surfaces(name)
    finding = found.finding("zombie_memcgs")
    if finding["verdict"] == "unknown":
        return
    dying = evidence_of(finding, "dying memory cgroups.*")[0]["value"]
    assert re.search(rf"\b{dying:,.0f} dying", finding["summary"])
    if finding["verdict"] == "present":
        assert f"{dying:,.0f} dying memory cgroups" in found.text
        if finding["entities"]:
            assert re.search(rf"\b{dying:,.0f} dying", found.why_of(finding))
    rows = found.cells("memcgs", found.end - 60, found.end + 1)
    assert [row["dying"] for row in rows if row["dying"] != "unknown"][-1] == number(dying)
    line = found.line("memcgs", "dying", "mean")
    assert line[~np.isnan(line)][-1] == dying
    assert found.measures[DYING] == dying
    assert top_json(found.window)["zombies"]["dying"] == dying
    for alarm in found.alarms:
        if alarm.kind == "zombie_memcgs" and alarm.about != "leak":  # that one is by its rate
            raised = [count.dying for count in counts(found.window) if count.mono_s == alarm.mono_s]
            assert raised == [figure(alarm.detail)]
            second = floor(found.window.wall(alarm.mono_s)) - found.seconds("memcgs")[0]
            assert figure(alarm.detail) in line[second - 1 : second + 2]


@every_incident
def test_who_left_zombies_is_counted_once(name: str):
    """The lane's owners, the traced deaths of the verdict, and its owners."""
    found = surfaces(name)
    traced = deaths(found.window)
    names = found.seconds("memcgs")[1].names
    if traced is None:
        assert not [name for name in names if name.startswith("from ")]
        return

    def named(path: str, below: str) -> str:
        return unit_of(join(path, below)) or join(path, path_stem(below))

    left = Counter(named(*split(death.path)) for death in traced.unreleased)
    by_name: Counter[str] = Counter()
    other = set()
    for owner in owners(found.window):
        who = owner.unit or named(owner.path, owner.names or "")
        by_name[who] += owner.dying or 0
        other |= {who} if owner.method != TRACED else set()
    shown = {name.removeprefix("from ") for name in names if name.startswith("from ")}
    most = [name for name, number in left.most_common(MOST) if number >= 5]
    assert set(most) <= shown
    for name in shown:
        line = found.line("memcgs", f"from {name}", "mean")
        assert line[~np.isnan(line)][-1] == left[name], name
        if name in by_name and name not in other:
            assert by_name[name] == left[name]


@every_incident
def test_owners_have_no_more_zombies_together_than_the_node(name: str):
    """No dead cgroup is counted below two directories, nor twice below one.

    Where few are dying, those of the boot may still be listed after they were released.
    """
    window = surfaces(name).window
    most = max((count.dying for count in counts(window)), default=0)
    owned = sum(owner.dying or 0 for owner in owners(window))
    assert owned <= most or zombie_memcgs(window).verdict is Verdict.ABSENT


def test_a_count_that_failed_in_the_end_leaves_the_last_one_everywhere():
    def census(dying: int | None) -> CgroupCensus:
        total = None if dying is None else dying + 100
        reason = "directories changed" if dying is None else None
        return CgroupCensus("v1", 1, "/m", "node", total, 100, dying, "m", reason)

    loop = Unit("a.service", "loaded", "activating", "auto-restart", None, 900, None, None, None,
                None, None, None, None, "/system.slice/a.service", "")  # fmt: skip
    read = [(5.0 * at, [census(dying), loop]) for at, dying in enumerate((890, 900, None))]
    window = make_window(read)
    assert measure(window)[DYING] == dying_in(window) == zombie_memcgs(window).evidence[0].number
    assert top_json(window)["zombies"]["dying"] == zombies_json(tally(window))["dying"] == 900
    assert " 900 · 100 live" in frame(window, 100, 30).plain
    assert dying_share(window) == 0.9
    (suspect,) = suspects(window)
    assert suspect.ratio == 1.0
    (owner,) = owners(window)
    assert owner.dying == 900


@every_incident
def test_restarts_of_a_unit_are_one_number(name: str):
    found = surfaces(name)
    finding = found.finding("crash_looping_unit")
    if finding["verdict"] != "present":
        return
    for unit in finding["entities"]["unit"]:
        _restarts_are_one(found, finding, unit, first=unit == finding["entities"]["unit"][0])


def _restarts_are_one(found: Surfaces, finding: dict[str, Any], unit: str, first: bool) -> None:
    (evidence,) = evidence_of(finding, re.escape(f"restarts of {unit}"))
    so_far, recent = evidence["value"], figure(evidence["text"].partition(" so far, ")[2])
    assert figure(evidence["text"]) == so_far
    assert not first or re.search(rf"{so_far:,.0f} (times )?so far", found.text)
    assert found.measures[RESTARTS.format(unit)] == recent

    # Rates of the steps that are known, and what was counted where readings are missing.
    signal = found.signals[unit, UNIT_RESTARTS.help]
    lasts, unseen = {}, 0.0
    for piece in found.window.columns(Unit, ("restarts",), lambda key: key[0] == unit):
        follows = piece.follows[1:]
        lasts |= dict(zip(piece.mono[1:].tolist(), np.diff(piece.mono).tolist(), strict=True))
        unseen += np.diff(piece.values["restarts"][0])[~follows].sum()
    known = ~np.isnan(signal.value)
    spent = np.array([lasts[end] for end in signal.mono_s[known].tolist()])
    counted = float((signal.value[known] / 60 * spent).sum())
    assert round(counted + unseen, 3) == recent

    # The moments of `why`: an end for each restart, or it says how many it has no time of.
    occasions = found.why("unit", unit).occasions
    if occasions.partial:
        assert figure(occasions.note) == recent
    else:
        assert len(occasions.moments) >= recent - 1  # the first end may lie before the recording

    cells = [row[unit] for row in found.cells("restarts", found.start, found.end)]
    peaks = [figure(cell.partition("peak ")[2] or cell) for cell in cells if cell != "unknown"]
    peak = float(signal.value[known].max())
    assert max(peaks) == pytest.approx(peak, rel=5e-3)  # three digits are shown
    assert np.nanmax(found.line("restarts", unit)) == pytest.approx(peak, rel=1e-5)
    # One column over all of it: its mean, times the time that is known, is what was counted.
    builder = found.view._built["restarts"].builder
    assert isinstance(builder, Restarts)
    level = next(index for index in range(7, 13) if floor(found.start) >> index
                 == floor(found.end) >> index)  # fmt: skip
    columns = TableColumns(floor(found.start) >> level, 1, level)
    span = TableSpan(Recording(found.incident.recording), found.start, found.end)
    mean, _ = builder.values(span, columns)
    at = [line for line, _ in builder.shown()].index((unit,))
    assert float(mean[at, 0]) / 60 * spent.sum() == pytest.approx(counted, abs=0.01)


def test_restarts_of_a_counter_that_was_cleared_are_those_of_the_journal_everywhere():
    def unit(restarts: int, started_s: float) -> Unit:
        return Unit("a.service", "loaded", "activating", "auto-restart", None, restarts, "always",
                    None, int(started_s * 1e6), None, None, None, None, None, "")  # fmt: skip

    at = [*((91 + n, 5.0 * n) for n in range(5)), *((1 + n, 25 + 5.0 * n) for n in range(4))]
    marks = [RestartMark("a.service", counter, EPOCH + mono_s) for counter, mono_s in at]
    manager = ServiceManager("systemd", "252", "bus")
    census = CgroupCensus("v1", 1, "/m", "node", 199, 100, 99, "m", None)
    window = make_window(
        [(0.0, [manager, unit(90, 0.5)]), (50.0, [manager, census, unit(4, 40.5), *marks, *marks])]
    )
    finding = crash_looping_unit(window)
    restarts, period = finding.evidence[:2]
    assert restarts.value == "99 so far, 9 in this window (counter cleared meanwhile)"
    assert (period.number, period.source) == (5.0, "restart counter in the journal")
    assert measure(window, units=("a.service",))[RESTARTS.format("a.service")] == 9
    (suspect,) = suspects(window)
    assert (suspect.ratio, suspect.period_s) == (1.0, 5.0)
    why = occasions(Subject("unit", "a.service"), window, (finding,))
    assert len(why.moments) == 9 or why.note.startswith("9 restarts")


@every_incident
def test_resets_of_a_nic_are_one_number(name: str):
    found = surfaces(name)
    finding = found.finding("nic_resets")
    # A driver without a reset of its own (virtio) logs only that the kernel's watchdog fired.
    what, times = r"resets in the kernel log", "was reset {}"
    if not evidence_of(finding, what):
        what, times = r"transmit watchdogs in the kernel log", "hit its transmit watchdog {}"
    logged = evidence_of(finding, what)
    assert logged or finding["verdict"] != "present"
    for evidence in logged:
        resets = evidence["value"]
        assert figure(evidence["text"]) == resets
        assert len(found.marked("reset")) == resets
        assert found.measures[RESETS] == resets
        alarms = [alarm for alarm in found.alarms if alarm.kind == "nic_reset"]
        assert _episodes([found.window.wall(alarm.mono_s) for alarm in alarms]) == resets
        rows = [row for row in found.cells("events", found.start, found.end)
                if row["kind"] in ("nic_reset", "nic_watchdog")]  # fmt: skip
        assert _episodes([datetime.fromisoformat(f"{row['time']}Z").timestamp() for row in rows]) \
            == resets  # fmt: skip
        messages = {row["what"] for row in rows}
        top = [event["time"] for event in top_json(found.window)["events"]
               if event["message"] in messages and found.start <= event["time"]]  # fmt: skip
        assert _episodes(sorted(top)) == resets
        if finding["verdict"] == "present":
            nics = finding["entities"]["nic"]
            by_nic = {nic: len(found.moments("nic", nic)) for nic in nics}
            assert sum(by_nic.values()) == resets
            since_boot = {load.name: load.resets for load in nic_loads(found.window)}
            for nic, mine in by_nic.items():
                assert (since_boot[nic] or 0) >= mine
                of_nic = [found.window.wall(alarm.mono_s) for alarm in alarms if alarm.about == nic]
                assert _episodes(of_nic) == mine
            often = "once" if by_nic[nics[0]] == 1 else f"{by_nic[nics[0]]} times"
            assert f"{nics[0]} {times.format(often)}" in found.text


def _episodes(times: list[float]) -> int:
    """How many resets these lines about resets are, by the time between them."""
    return sum(later - earlier > ONE_RESET.value for earlier, later in pairwise([-inf, *times]))


def test_the_drivers_counters_give_the_resets_of_the_log(tmp_path: Path):
    """In a made recording: the recorded ones have the log of a driver that they do not have."""
    write(tmp_path / "recording", small(*INCIDENT, hours=0.5, walks=3))
    found = Surfaces(Incident(tmp_path))
    finding = found.finding("nic_resets")
    (logged,) = evidence_of(finding, "resets in the kernel log")
    (counted,) = evidence_of(finding, "eth0 total_resets")
    assert logged["value"] == len(found.marked("reset")) == found.measures[RESETS] == 3
    assert counted["text"].endswith("+3 while watched")
    (nic,) = (nic for nic in top_json(found.window)["nics"] if nic["name"] == "eth0")
    assert nic["resets"]["total_resets"] == counted["value"]
    assert np.nansum(found.line("nic_faults", "eth0 resets", "mean")) == pytest.approx(3, abs=0.02)
    table = [row["eth0 resets"] for row in found.cells("nic_faults", found.start, found.end)]
    assert max(figure(cell.partition("peak ")[2] or cell) for cell in table if cell[0].isdigit()) \
        == pytest.approx(np.nanmax(found.line("nic_faults", "eth0 resets")), rel=5e-3)  # fmt: skip


@every_incident
def test_throttling_is_one_number(name: str):
    found = surfaces(name)
    known = stopped(found.window)
    if not known.us:
        assert found.measures.get(THROTTLED, 0) == 0
        return
    assert found.measures[THROTTLED] == pytest.approx(sum(known.us.values()) / 1e3 / known.seconds)
    steps = steps_of(found.window.columns(CgroupThrottle, ("throttled_us",)))
    for path, us in known.us.items():
        signal = found.signals.get((path, "stopped by its quota"))
        if signal is None:
            continue
        lasts = dict(zip(steps.end.tolist(), steps.seconds.tolist(), strict=True))
        spent = np.array([lasts[end] for end in signal.mono_s.tolist()])
        ms = float(np.nansum(signal.value * spent)) * 10
        first = next(
            row.throttled_us for batch in found.window.batches(CgroupThrottle) or ()
            for row in batch.rows if row.path == path
        )  # fmt: skip
        # Signals know nothing of the step in which it was made.
        assert us / 1e3 - (first or 0) / 1e3 - 0.1 <= ms <= us / 1e3 + 0.1
    finding = found.finding("quota_throttling")
    if finding["verdict"] == "present":
        (share, time) = finding["evidence"][:2]
        (path,) = finding["entities"]["cgroup"][:1]
        assert f"{time['value']:.1f} s" == time["text"]
        assert time["value"] <= known.us[path] / 1e6 + 1e-6
        assert f"{share['value']:.0f} % of its periods" in finding["summary"]


#: Where pressure is given: the finding, its evidence and the signal of `why`.
PRESSED = (
    ("memory_pressure", "time in which some task waited for memory", ("memory", "some pressure")),
    ("memory_pressure", "time in which all tasks waited for memory", ("memory", "full pressure")),
    ("stuck_io", "all tasks waited for I/O", ("io", "full pressure")),
)


@every_incident
def test_reclaim_and_faults_and_pressure_are_one_number(name: str):
    found = surfaces(name)
    reclaim = found.finding("direct_reclaim")
    scanned = found.evidence(reclaim, "pages scanned in direct reclaim")
    if reclaim["verdict"] == "present" and scanned:  # else it was seen in stacks alone
        (scanned,) = scanned
        start, end = reclaim["start"], reclaim["end"]
        assert f"{scanned['value']:,.0f} pages/s" in reclaim["summary"]
        measured = measure(found.over(start, end))[RECLAIM]
        assert measured == pytest.approx(scanned["value"], rel=0.02)
    elif reclaim["verdict"] == "absent" and scanned:
        assert found.measures[RECLAIM] == pytest.approx(scanned[0]["value"], rel=0.02, abs=0.5)

    storm = found.finding("page_fault_storm")
    for faults in found.evidence(storm, "page faults"):
        present = storm["verdict"] == "present"
        start, end = (storm["start"], storm["end"]) if present else (found.start, found.end)
        assert figure(faults["text"]) == pytest.approx(faults["value"], abs=WHOLE)
        assert found.mean(VmCounter, ("vmstat", "pgfault"), start, end)[0] == pytest.approx(
            faults["value"], rel=0.02, abs=1)  # fmt: skip

    for check, what, name in PRESSED:
        finding = found.finding(check)
        # `stuck_io` gives it as what else was so, of all of the recording.
        part = finding["verdict"] == "present" and check != "stuck_io"
        start, end = (finding["start"], finding["end"]) if part else (found.start, found.end)
        for share in found.evidence(finding, what):
            mean, spent = found.mean(Pressure, name, start, end)
            assert mean == pytest.approx(share["value"], rel=1e-5, abs=1e-6)
            tenths = "." in share["text"]
            assert figure(share["text"]) == pytest.approx(mean, abs=TENTH if tenths else WHOLE)
            assert share["unit"] == f"% of {duration(spent)}" or not spent


@every_incident
def test_the_mean_of_all_cores_is_one_number(name: str):
    found = surfaces(name)
    series = core_series(found.window)
    if series is None:
        return
    every = all_cores(series)
    whole = every.over(found.window.start_mono, found.window.end_mono)[-1]
    if found.finding("cpu_pressure")["verdict"] == "absent":
        (busy,) = evidence_of(found.finding("cpu_pressure"), "all cores busy")
        # It counts I/O wait and stolen time as busy, too.
        assert busy["value"] == pytest.approx(sum(whole[:4]), abs=0.1)
    last = every.over(float(every.start[-1]), float(every.end[-1]))[-1]
    shown = figure(
        re.findall(r"cores?, (\d+)% busy on average", frame(found.window, 100, 40).plain)[0]
    )
    assert shown == pytest.approx(sum(last[:3]), abs=WHOLE)


@every_incident
def test_the_longest_wait_of_a_softirq_is_one_number(name: str):
    found = surfaces(name)
    finding = found.finding("starved_napi")
    if finding["verdict"] == "present":
        ((vector, said),) = re.findall(
            r"\b(NET_[RT]X|NAPI) (?:of .*)?waited ([\d.,]+ m?s) for core", finding["summary"]
        )
        # NET_RX and NET_TX of a core often wait for the same thing, and as long.
        published = [
            item
            for item in finding["evidence"]
            if item["value"] is not None and vector in item["what"].split(": ")[-1]
        ]
        wait = max(published, key=lambda item: item["value"])
        assert duration(wait["value"]) == wait["text"] == said
        assert {*re.findall(r"waited ([\d.,]+ m?s) for core", found.text)} == {said}
        assert {*re.findall(r"waited ([\d.,]+ m?s) for core", found.why_of(finding))} == {said}
    vectors = r"(?:the longest wait of|core \d+:) (NET_[RT]X|a network softirq)\b"
    waits = [
        (item["value"], match[1])
        for item in finding["evidence"]
        if (match := re.match(vectors, item["what"])) and item["value"] is not None
    ]
    if not waits:
        assert finding["verdict"] != "absent" or finding["missing"]
        return
    longest, vector = max(waits)
    columns = [f"{vector} longest"] if longest else ["NET_RX longest", "NET_TX longest"]
    names = found.seconds("softirq_wait")[1].names
    assert not longest or columns[0] in names
    for column in columns if longest else [column for column in columns if column in names]:
        cells = [row[column] for row in found.cells("softirq_wait", found.start, found.end)]
        peaks = [figure(cell.partition("peak ")[2] or cell) for cell in cells if cell[0].isdigit()]
        assert max(peaks) == pytest.approx(figure(number(1000 * longest)), rel=5e-3)
        line = found.line("softirq_wait", column)
        assert np.nanmax(line) == pytest.approx(1000 * longest, rel=1e-5)
    alarmed = [figure(alarm.detail.partition(" waited ")[2]) for alarm in found.alarms
               if alarm.kind == "softirq_wait" and "NET_" in alarm.detail]  # fmt: skip
    assert bool(alarmed) == (longest >= WAIT.value)
    assert not alarmed or max(alarmed) == pytest.approx(longest, abs=TENTH)


#: Of phrases under RULED OUT: where the phrase and the finding's summary give the same number.
RULED_OUT = {
    "direct_reclaim": (
        r"direct reclaim \((.*) pages? scanned\)",
        r"tasks scanned (.*) pages? them",
    ),
    "memory_pressure": (r"memory pressure \((.*) %\)", r"^(.*) % of the time a task waited"),
    "page_fault_storm": (r"page faults \((.*) major/s\)", r", (.*) of them major"),
    "quota_throttling": (r"CPU quota \((.*)\)", r"; (most often throttled .*)$"),
}


@every_incident
def test_what_speaks_against_a_cause_has_the_number_of_its_finding(name: str):
    found = surfaces(name)
    left = {phrase for phrase in found.json["against"] if re.search(r"\d", phrase)}
    for check, (in_phrase, in_summary) in RULED_OUT.items():
        finding = found.finding(check)
        said = {phrase for phrase in left if re.fullmatch(in_phrase, phrase)}
        left -= said
        if finding["verdict"] == "absent":
            numbers = [re.fullmatch(in_phrase, phrase)[1] for phrase in said]  # type: ignore[index]
            assert numbers == re.findall(in_summary, finding["summary"])
    for phrase in left:
        if phrase.startswith("TCP loss"):
            summary = found.finding("tcp_loss")["summary"]
            again = re.match(r"([\d,]+) of ([\d,]+) TCP segments? retransmitted", summary)
            share = 100 * figure(again[1]) / figure(again[2]) if again else 0.0
            assert figure(phrase) == pytest.approx(share, abs=0.00501 if share < 1 else TENTH)
        else:  # of all cores; the evidence is of those that serve a queue
            of_queues = evidence_of(found.finding("starved_napi"), "packets dropped from .*")
            assert phrase.startswith("packet flood (all cores: backlog dropped ")
            assert all(figure(phrase) >= item["value"] for item in of_queues)


def test_the_html_report_gives_the_numbers_of_the_verdict():
    """Of one recording, since a page takes seconds: the parts of all of them are compared above."""
    found = surfaces("whole_chain-6.18-v1")
    finding = found.finding("saturated_core")
    start, end = finding["start"], finding["end"]
    core = finding["entities"]["core"][0]
    (by_kind,) = evidence_of(finding, f"core {core} by kind")
    (held,) = evidence_of(finding, rf"core {core} in the kernel(, \d+ times)?")
    data = page_data(found.view, found.diagnosis)
    assert data["event"] == pytest.approx([start, end])
    (part,) = (part for part in data["tables"]["cores"] if part["from"] == start)
    (row,) = (row for row in rows_of(part["document"]) if row["core"] == f"core {core}")
    assert figure(row["system"]) == pytest.approx(by_kind["value"], abs=SHARE)
    (spike,) = (spike for spike in data["moments"]["spike"] if abs(spike["time"] - start) < CLOCK_S)
    assert figure(spike["text"].partition(" for ")[2]) == pytest.approx(held["value"], abs=TENTH)
    (logged,) = evidence_of(found.finding("nic_resets"), "resets in the kernel log")
    assert len(data["moments"]["reset"]) == logged["value"]


@every_incident
def test_the_data_of_every_page_gives_the_numbers_of_the_verdict(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    found = surfaces(name)
    for part in ("_flames", "_functions"):
        monkeypatch.setattr(incident_file, part, lambda *_: ())
    monkeypatch.setattr(incident_file, "tiles", lambda *_: ({}, 0))  # those of the view
    data = page_data(found.view, found.diagnosis)
    assert data["explain"]["findings"] == found.json["findings"]
    for kind in ("spike", "reset"):
        inside = [(mark.time, mark.text) for mark in found.marked(kind)
                  if found.diagnosis.start - 1e-3 <= mark.time <= found.diagnosis.end]  # fmt: skip
        assert [(moment["time"], moment["text"]) for moment in data["moments"][kind]] == inside
    series = core_series(found.window)
    for part in data["tables"].get("cores", ()):
        assert series is not None
        shares = series.over(found.window.mono(part["from"]), found.window.mono(part["to"]))
        for row in rows_of(part["document"]):
            share = shares[int(row["core"].removeprefix("core "))]
            for value, kind in zip(share, ("user", "system", "softirq"), strict=False):
                assert figure(row[kind]) == pytest.approx(value, abs=SHARE)


def test_every_fact_is_there_to_be_compared():
    """Of each there are recordings in which it was found."""
    ids = ("saturated_core", "zombie_memcgs", "crash_looping_unit", "nic_resets", "starved_napi")
    for name in ids:
        present = [incident.name for incident in incidents()
                   if surfaces(incident.name).finding(name)["verdict"] == "present"]  # fmt: skip
        assert len(present) >= 3
