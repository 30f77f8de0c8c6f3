"""The original leak, one dying cgroup in ten seconds, over a night that was recorded."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lab.synthetic import Plan, write
from lab.synthetic.plan import PERIOD_S, UNIT
from sexton.detect.leak import TOO_MANY
from sexton.model.rows.cgroup import CgroupCensus
from sexton.store.layout import segments_in
from sexton.store.recording import Recording
from tests.support.cli import sexton

HOURS = 12
#: A small node that was booted ten minutes before.
PLAN = Plan(
    cores=2, queues=2, hours=HOURS, processes=40, cgroups=40, units=40, uptime_s=600.0,
    plant=("crash_loop",),
)  # fmt: skip

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written in segments of two minutes, sealed, and compacted hour by hour."""
    return write(tmp_path_factory.mktemp("night") / "node", PLAN).directory


def said(night: Path, *words: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The diagnosis, and what its finding about dying cgroups has as evidence."""
    ended = sexton("diagnose", "--from", night, "--json", *words)
    assert ended.returncode == 1, ended.stderr
    diagnosis = json.loads(ended.stdout)
    (finding,) = (item for item in diagnosis["findings"] if item["id"] == "zombie_memcgs")
    return diagnosis, {item["what"]: item["text"] for item in finding["evidence"]}


def too_many_at(night: Path) -> float:
    """When there were too many (UNIX), by what was counted."""
    return next(
        batch.wall_s
        for segment in Recording(night).segments
        for batch in segment.batches(CgroupCensus)
        for row in batch.rows
        if (row.dying or 0) >= TOO_MANY.value
    )


def test_the_recording_was_compacted_by_hours(night: Path):
    assert len(segments_in(night / "segments")) <= HOURS + 2
    assert all(name.last is not None for name in segments_in(night / "segments"))


def test_over_a_night_the_leak_its_owner_and_its_pace_are_found_and_nothing_else(night: Path):
    diagnosis, evidence = said(night)
    (chain,) = (item for item in diagnosis["chains"] if item["root"] == "crash_looping_unit")
    assert [link["id"] for link in chain["links"]] == ["crash_loop_leaves_zombies"]
    assert chain["strength"] == "proven"
    found = {item["id"]: item for item in diagnosis["findings"] if item["verdict"] == "present"}
    problems = {name for name, item in found.items() if item["severity"] != "info"}
    assert problems == {"crash_looping_unit", "cgroup_churn", "zombie_memcgs"}
    assert found["zombie_memcgs"]["entities"]["unit"] == [UNIT]
    rate = evidence["memory cgroups leaked"]
    assert rate.startswith(f"{3600 / PERIOD_S:.0f} an hour (")
    assert f") from /system.slice/{UNIT};" in rate
    assert "will reach another 1,000 dying" in rate, "it passed the first"


def test_in_the_first_hour_it_is_found_with_the_time_at_which_there_will_be_too_many(night: Path):
    start = datetime.fromtimestamp(PLAN.start, UTC)
    span = f"{start:%Y-%m-%dT%H:%M:%SZ}..{start + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    diagnosis, evidence = said(night, "--window", span)
    assert diagnosis["chains"][0]["root"] == "crash_looping_unit"
    rate = evidence["memory cgroups leaked"]
    assert f"from /system.slice/{UNIT}; will reach 1,000 dying in 1 h" in rate
    told = re.search(r"at (\d\d:\d\d:\d\d) UTC", rate)
    assert told is not None
    when = datetime.combine(start.date(), datetime.strptime(told[1], "%H:%M:%S").time(), UTC)
    assert abs(when.timestamp() - too_many_at(night)) < 300


def test_within_minutes_the_owner_and_the_pace_are_known(night: Path):
    """Long before there are many: a hundred, and some thirty of those are ordinary."""
    start = datetime.fromtimestamp(PLAN.start, UTC)
    span = f"{start:%Y-%m-%dT%H:%M:%SZ}..{start + timedelta(minutes=3):%Y-%m-%dT%H:%M:%SZ}"
    _, evidence = said(night, "--window", span)
    rate = evidence["memory cgroups leaked"]
    assert f"from /system.slice/{UNIT}; will reach 1,000 dying in 2 h" in rate
