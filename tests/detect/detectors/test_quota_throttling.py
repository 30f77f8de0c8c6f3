"""Cgroups that their CPU quota stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.detect.detectors.cpu.quota_throttling import detect
from sexton.detect.registry import all_detectors
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.rows.cgroup import CgroupThrottle
from sexton.model.rows.unit import Unit
from sexton.model.window import Batch, Window
from tests.support.windows import EPOCH, make_window, providers

PATH = "/system.slice/a.service"


def row(periods: int, throttled: int, stopped_s: float, path: str = PATH) -> CgroupThrottle:
    return CgroupThrottle(path, periods, throttled, int(stopped_s * 1e6))


def run(*readings: tuple[float, list[CgroupThrottle]]) -> Finding:
    return detect(make_window(readings, empty=(CgroupThrottle,)))


def ten_seconds(periods: int, throttled: int, stopped_s: float) -> Finding:
    """So much more in ten seconds, read twice."""
    return run(
        (0, [row(1000, 500, 9.0)]), (10, [row(1000 + periods, 500 + throttled, 9 + stopped_s)])
    )


@pytest.mark.parametrize(
    ("periods", "throttled", "stopped_s", "severity"),
    [
        (100, 50, 2.5, Severity.WARNING),
        (100, 49, 2.5, Severity.INFO),
        (100, 50, 2.4, Severity.INFO),
        (100, 10, 0.5, Severity.INFO),
        (100, 9, 0.5, None),
        (101, 10, 0.5, None),
        (9, 9, 0.9, None),
        (100, 0, 0.0, None),
    ],
)
def test_how_often_and_how_long_decide(periods, throttled, stopped_s, severity):
    finding = ten_seconds(periods, throttled, stopped_s)
    if severity is None:
        assert finding.verdict is Verdict.ABSENT
    else:
        assert (finding.verdict, finding.severity) == (Verdict.PRESENT, severity)


def test_five_seconds_of_it_may_be_a_program_that_starts():
    finding = run((0, [row(0, 0, 0)]), (5, [row(50, 50, 4.0)]))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.INFO)


def test_a_busy_start_is_found_in_an_hour_of_calm_and_only_it():
    periods = throttled = 0
    stopped = 0.0
    readings = []
    for at in range(0, 3601, 10):
        readings.append((float(at), [row(periods, throttled, stopped)]))
        periods += 100
        if 1000 <= at < 1060:
            throttled += 90
            stopped += 8
    finding = run(*readings)
    assert finding.severity is Severity.WARNING
    assert (finding.start, finding.end) == (EPOCH + 1000, EPOCH + 1060)
    assert (
        "90 % of its periods for 30.0 s; throttled time summed over its cores: 24.0 s"
        in finding.summary
    )


def over_a_gap(periods: int, throttled: int, stopped_s: float) -> Finding:
    """A gap of 1,000 s in which it ran for so many periods, and 10 s in which it was free."""
    batches = [
        Batch(0.0, EPOCH, (row(0, 0, 0),)),
        Batch(1000.0, EPOCH + 1000, (row(periods, throttled, stopped_s),), follows=False),
        Batch(1010.0, EPOCH + 1010, (row(periods + 100, throttled, stopped_s),)),
    ]
    return detect(Window({CgroupThrottle: batches}, (), providers()))


def test_what_lies_between_readings_that_are_missing_counts_as_a_mean():
    assert over_a_gap(9000, 9000, 800).severity is Severity.WARNING
    hidden = over_a_gap(9000, 100, 10)
    assert hidden.verdict is Verdict.ABSENT
    assert "in 16 min 40 s without a reading" in hidden.missing[0].what
    assert over_a_gap(9000, 9, 2).missing == ()


def test_a_cgroup_made_anew_starts_again_and_counts_nothing():
    finding = run((0, [row(9000, 9000, 800)]), (10, [row(100, 100, 9.0)]))
    assert finding.verdict is Verdict.ABSENT


def test_the_one_stopped_longest_leads_and_all_are_named():
    other = "/kubepods/pod1"
    finding = run(
        (0, [row(0, 0, 0), row(0, 0, 0, other), row(0, 0, 0, "/calm")]),
        (10, [row(100, 60, 6), row(100, 90, 8, other), row(100, 1, 0.01, "/calm")]),
    )
    assert finding.summary.startswith(f"{other} (and 1 more cgroup) was throttled")
    assert finding.entities == {"cgroup": (other, PATH), "unit": ("a.service",)}


def test_a_unit_is_known_by_the_cgroup_it_has():
    unit = Unit(
        "odd.service", "loaded", "active", "running", None, 0, None, None, 1, 0, 1, None, 0,
        "/custom/place", "systemd",
    )  # fmt: skip
    rows = [row(0, 0, 0, "/custom/place"), row(100, 100, 9, "/custom/place")]
    finding = detect(make_window([(0, [rows[0], unit]), (10, [rows[1], unit])]))
    assert finding.entities["unit"] == ("odd.service",)
    assert "(odd.service)" in finding.summary


def test_nobody_with_a_quota_is_not_applicable():
    finding = run((0, []), (10, []))
    assert finding.verdict is Verdict.NOT_APPLICABLE


def test_one_reading_cannot_tell():
    finding = run((0, [row(100, 90, 9)]))
    assert finding.verdict is Verdict.UNKNOWN
    assert finding.missing


def test_time_of_many_cores_exceeds_the_clock_and_is_said_to_be_theirs():
    summary = ten_seconds(100, 100, 40.0).summary
    assert (
        "in 100 % of its periods for 10.0 s; throttled time summed over its cores: 40.0 s"
        in summary
    )
    assert "summed over its cores" in summary
    assert "40.0 s of 10.0 s" not in summary


def test_a_cgroup_that_came_between_two_readings_is_judged_since_the_one_before():
    born = run((0, []), (10, [row(98, 96, 8.0)]))
    assert (born.verdict, born.severity) == (Verdict.PRESENT, Severity.WARNING)
    assert (born.start, born.end) == (EPOCH, EPOCH + 10)
    calm = run((0, []), (10, [row(98, 3, 0.1)]))
    assert calm.verdict is Verdict.ABSENT


def test_a_quota_given_back_brings_its_old_counts_along_and_they_are_not_taken_for_new():
    finding = run((0, []), (10, [row(9000, 9000, 800)]))
    assert finding.verdict is Verdict.UNKNOWN
    again = run((0, []), (10, [row(9000, 9000, 800)]), (20, [row(9100, 9001, 800.1)]))
    assert again.verdict is Verdict.ABSENT


def test_a_cgroup_that_was_gone_before_it_was_read_again_makes_nothing_unknown():
    finding = run((0, [row(40, 40, 3.0)]), (10, []), (20, []))
    assert finding.verdict is Verdict.ABSENT
    assert "in one reading only" in finding.summary
    assert finding.evidence[0].value == "100 % (40 of 40)"


def test_one_reading_of_who_was_never_stopped_tells_all_there_is():
    finding = run((0, [row(4000, 0, 0.0)]))
    assert finding.verdict is Verdict.ABSENT
    assert finding.summary == "1 cgroup with a CPU quota, none ever throttled"


def test_a_pods_path_that_was_hardly_throttled_is_no_longer_than_a_line():
    pod = f"/kubepods/burstable/pod6354a189-c62d-4504-93aa-63b22db3abff/{'0f' * 32}"
    summary = run((0, [row(0, 0, 0, pod)]), (10, [row(101, 1, 0.01, pod)])).summary
    assert "most often throttled /kubepods/burstable/pod6354a18…" in summary
    assert len(summary) < 160


def test_a_hostile_path_is_escaped():
    evil = replace(row(0, 0, 0), path="/a\x1b[2J\udcff")
    finding = run((0, [evil]), (10, [replace(evil, periods=100, throttled=100, throttled_us=9**7)]))
    assert finding.entities["cgroup"] == ("/a\\x1b[2J\\xff",)
    assert "\x1b" not in finding.summary


def test_without_the_files_it_is_unknown():
    (detector,) = [check for check in all_detectors() if check.id == "quota_throttling"]
    assert detector.run(make_window([])).verdict is Verdict.UNKNOWN
