"""The whole of Sexton against a real systemd: a unit in a crash loop is found, and named."""

from __future__ import annotations

import json

import pytest

from sexton.detect.detectors.cgroups import zombie_memcgs
from sexton.detect.registry import Threshold
from sexton.explain.diagnosis import diagnose
from sexton.model.chain import Strength
from sexton.model.finding import Verdict
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.unit import ServiceManager, Unit
from sexton.model.window import Batch, Window
from tests.yard.asking import ask
from tests.yard.test_units import LEAK, dead_below, restarted
from tests.yard.yard import PYTHON, Yard

pytestmark = [pytest.mark.root, pytest.mark.systemd]

UNIT = "[Unit]\nDefaultDependencies=no\nStartLimitIntervalSec=0\n"
LEAKER = UNIT + LEAK.replace("20ms", "1ms")
RESTARTS = 40


def test_diagnose_inside_finds_the_unit_and_ends_with_1(own_yard: Yard):
    own_yard.install("leak.service", LEAKER)
    own_yard.run("systemctl", "start", "--no-block", "leak.service")
    restarted(own_yard, "leak.service", 5)
    command = f"{PYTHON} -B -m sexton diagnose --json --seconds 6; echo exit $?"
    text, _, status = own_yard.run("sh", "-c", command, deadline_s=60).rpartition("exit ")
    diagnosis = json.loads(text)
    found = {finding["id"]: finding for finding in diagnosis["findings"]}
    assert int(status) == 1
    assert found["crash_looping_unit"]["verdict"] == "present"
    assert found["crash_looping_unit"]["entities"]["unit"] == ["leak.service"]
    # Seen from a cgroup namespace the node's dead are not to be had, and nobody may guess them.
    assert found["zombie_memcgs"]["verdict"] in ("unknown", "present")


def test_the_real_rows_make_the_link_from_the_loop_to_the_dead(
    own_yard: Yard, monkeypatch: pytest.MonkeyPatch
):
    # Five hundred would take half a minute: the yard is small, and so is its limit.
    few = Threshold("many", RESTARTS / 2, "dying", "the yard is small")
    monkeypatch.setattr(zombie_memcgs, "MANY", few)
    own_yard.install("leak.service", LEAKER)
    readings = [ask(own_yard)]
    own_yard.run("systemctl", "start", "--no-block", "leak.service")
    restarted(own_yard, "leak.service", RESTARTS)
    readings.append(ask(own_yard, times=2))
    dying = dead_below(own_yard)
    units = [batch for reading in readings for batch in reading.units]
    moment = units[-1]

    def batch(row: Row) -> list[Batch]:
        return [Batch(moment.mono_s, moment.wall_s, (row,))]

    census = CgroupCensus("v1", 1, None, "node", dying + 9, 9, dying, "the yard's own", None)
    rows: dict[type[Row], list[Batch]] = {Unit: units, CgroupCensus: batch(census)}
    rows[ServiceManager] = batch(readings[-1].manager)
    diagnosis = diagnose(Window(rows))
    found = {finding.id: finding for finding in diagnosis.findings}
    assert found["zombie_memcgs"].verdict is Verdict.PRESENT, dying
    assert found["crash_looping_unit"].entities["unit"] == ("leak.service",)
    (link,) = [item for chain in diagnosis.chains for item in chain.links]
    assert link.id == "crash_loop_leaves_zombies"
    assert (link.shared, link.strength) == (("leak.service",), Strength.LIKELY), link.sentence
    assert link.against == ()
