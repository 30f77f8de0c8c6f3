"""Golden outputs: written, compared, and the same wherever and whenever they are made."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lab import golden
from lab.incident import (
    Expected,
    Incident,
    false_alarms,
    golden_outputs,
    incidents,
    mismatches,
    subject,
    top_cause,
)
from sexton.explain.diagnosis import diagnose
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.cpu import CoreTimes
from tests.support.incident import incident as rows_of_the_incident
from tests.support.recordings import cores, write_sealed

WHOLE = Expected(
    "crash_looping_unit",
    ("crash_looping_unit", "zombie_memcgs", "saturated_core", "starved_napi", "nic_resets"),
    ("slow_memcg_stats",),
    ("soft_lockups",),
    1,
)


@pytest.fixture
def root(tmp_path):
    place = tmp_path / "incidents" / "idle-6.1-v2"
    write_sealed(place / "recording", [{CoreTimes: [cores(100.0), cores(101.0)]}])
    expected = {"root": None, "chain": [], "present": [], "absent": [], "exit": 3}
    scene = {"id": "idle", "kernel": "6.1.0", "hierarchy": "v2", "expected": expected}
    (place / "scene.json").write_text(json.dumps(scene))
    return place.parent


@pytest.fixture
def one(root):
    return Incident(root / "idle-6.1-v2")


def test_what_was_never_written_differs_and_what_was_written_does_not(root, capsys):
    assert golden.main(["--root", str(root)]) == 1
    assert "+CANNOT TELL" in capsys.readouterr().out
    assert golden.main(["--root", str(root), "--update"]) == 0
    assert golden.main(["--root", str(root)]) == 0
    assert capsys.readouterr().out.startswith("wrote idle-6.1-v2/diagnosis.txt\n")


def test_a_changed_word_is_shown_as_a_difference(root, one, capsys):
    golden.update(one)
    path = one.path / "diagnosis.txt"
    path.write_text(path.read_text().replace("CANNOT", "CAN"))
    capsys.readouterr()
    assert golden.main(["--root", str(root)]) == 1
    out = capsys.readouterr().out
    assert "-CAN TELL" in out
    assert "+CANNOT TELL" in out
    assert golden.main(["--root", str(root), "another-one"]) == 0


def test_the_words_are_the_same_in_another_place_zone_and_terminal(one, monkeypatch, tmp_path):
    before = golden_outputs(one)
    monkeypatch.setenv("TZ", "Pacific/Chatham")
    monkeypatch.setenv("COLUMNS", "61")
    time.tzset()
    monkeypatch.chdir(tmp_path)
    try:
        assert golden_outputs(one) == before
        assert Path.cwd() == tmp_path
        assert os.environ["TZ"] == "Pacific/Chatham"
        assert time.tzname[0] == time.strftime("%Z", time.localtime(0))
    finally:
        monkeypatch.undo()
        time.tzset()


def test_no_cost_of_this_machine_is_in_them(one):
    document = json.loads(golden_outputs(one)["diagnosis.json"])
    assert (document["cost"]["cpu_s"], document["cost"]["peak_bytes"]) == (0.0, 0)
    assert document["replayed"]["recording"] == "idle-6.1-v2/recording"


def test_incidents_are_found_by_their_scene(root):
    (root / "half-made").mkdir()
    assert [incident.name for incident in incidents(root)] == ["idle-6.1-v2"]
    assert incidents(root)[0].key == ("idle", "6.1", "v2")
    assert subject(incidents(root)[0]) == "core 0"


def test_the_whole_chain_is_right_and_its_twins_are_wrong_for_it():
    whole = diagnose(rows_of_the_incident())
    assert [*mismatches(whole, WHOLE)] == []
    assert false_alarms(whole, WHOLE) == []
    assert top_cause(whole) == "crash_looping_unit"
    told = [*mismatches(diagnose(rows_of_the_incident(zombies=False)), WHOLE)]
    assert any(entry.startswith("chain ") for entry in told)
    told = [*mismatches(diagnose(rows_of_the_incident(resets=False)), WHOLE)]
    assert any("nic_resets" in entry for entry in told)


def test_a_problem_the_scene_did_not_make_is_a_false_alarm():
    narrow = Expected("crash_looping_unit", ("crash_looping_unit",), (), ("nic_resets",), 1)
    whole = diagnose(rows_of_the_incident())
    assert "nic_resets" in false_alarms(whole, narrow)
    assert any(wrong.startswith("nic_resets is present") for wrong in mismatches(whole, narrow))


def test_what_is_true_of_a_scene_and_not_always_caught_is_no_false_alarm():
    root = "crash_looping_unit"
    document = {"root": root, "exit": 1, "possible": ["nic_resets"]}
    found = false_alarms(diagnose(rows_of_the_incident()), Expected.read(document))
    assert root not in found
    assert "nic_resets" not in found
    assert "starved_napi" in found
    without = diagnose(rows_of_the_incident(resets=False))
    assert not any("nic_resets" in wrong for wrong in mismatches(without, Expected.read(document)))


def test_a_note_about_a_time_before_the_recording_breaks_no_promise_and_an_alarm_does():
    narrow = Expected("crash_looping_unit", ("crash_looping_unit",), (), ("soft_lockups",), 1)
    whole = diagnose(rows_of_the_incident())
    old = replace(
        whole.by_id["soft_lockups"], verdict=Verdict.PRESENT,
        start=whole.start - 60, end=whole.start - 50,
    )  # fmt: skip
    others = tuple(finding for finding in whole.findings if finding.id != old.id)
    for finding, value in (
        (old, False),
        (replace(old, end=whole.start + 1), True),
        (replace(old, start=None, end=None), True),
        (replace(old, severity=Severity.WARNING), True),
    ):
        said = [*mismatches(replace(whole, findings=(*others, finding)), narrow)]
        assert any(moment.startswith("soft_lockups is present") for moment in said) is value


def test_healthy_where_sickness_was_made_is_wrong():
    healthy = diagnose(
        rows_of_the_incident(zombies=False, burning=False, resets=False, looping=False)
    )
    assert top_cause(healthy) is None
    assert any(wrong.startswith("top cause None") for wrong in mismatches(healthy, WHOLE))
