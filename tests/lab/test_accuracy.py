"""The page on accuracy and the bake-off beside it, on recordings made by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import accuracy
from lab.incident import Incident
from lab.peers import bakeoff
from sexton.model.rows.cpu import CoreTimes
from sexton.model.window import Batch
from tests.support.recordings import WALL_S, write_sealed

NOTHING = {"root": None, "chain": [], "present": [], "absent": [], "exit": 3}


def quiet(mono_s):
    """Two cores, each a quarter of its time in user mode."""
    spent = int(mono_s * 250)
    rows = [CoreTimes(cpu, spent, 0, 0, 3 * spent, 0, 0, 0, 0) for cpu in (0, 1)]
    return Batch(mono_s, WALL_S + mono_s, tuple(rows))


def made(root: Path, name: str, expected=NOTHING, moments=()):
    scene, kernel, hierarchy = name.rsplit("-", 2)
    place = root / name
    readings = [quiet(100.0 + second) for second in range(31)]
    write_sealed(place / "recording", [{CoreTimes: readings}])
    document = {"id": scene, "kernel": kernel, "hierarchy": hierarchy, "expected": expected,
            "moments": [{"at": at, "what": "x"} for at in moments]}  # fmt: skip
    (place / "scene.json").write_text(json.dumps(document))
    return Incident(place)


def test_the_page_counts_what_is_right_and_names_what_is_wrong(tmp_path):
    right = made(tmp_path, "not_recorded-6.1-v2")
    wrong = made(tmp_path, "idle-6.1-v2", {**NOTHING, "exit": 0})
    page = accuracy.page([right, wrong])
    assert "2 recordings of 2 scenes on 1 kernel and hierarchy: 1 right, 1 wrong" in page
    assert "| not_recorded | 6.1 | v2 | cannot tell | cannot tell | – | yes | none |" in page
    assert "| idle | 6.1 | v2 | healthy | cannot tell | – | **no** | none |" in page
    assert "- idle-6.1-v2: exit 3, expected 0" in page
    assert "{{" not in page


def test_a_page_without_mistakes_has_no_list_of_them(tmp_path):
    page = accuracy.page([made(tmp_path, "not_recorded-6.1-v2")])
    assert "What is wrong" not in page
    assert "cannot tell" in page


def test_recordings_that_were_left_out_are_counted_and_listed(tmp_path, monkeypatch):
    listed = tmp_path / "left_out.toml"
    listed.write_text('[[recording]]\nname = "a-1-v1"\nsaid = "wrong"\nwhy = "x"\ncause = "seen"\n')
    monkeypatch.setattr(accuracy, "LEFT_OUT", listed)
    page = accuracy.page([made(tmp_path, "not_recorded-6.1-v2")])
    assert "not a rate: 1 more recording was diagnosed and left out" in page
    assert "| a-1-v1 | wrong | x | seen |" in page
    monkeypatch.setattr(accuracy, "LEFT_OUT", tmp_path / "nowhere.toml")
    assert "left out" not in accuracy.page([made(tmp_path, "idle-6.1-v2")])


def test_an_old_page_is_told_and_a_new_one_written(tmp_path, monkeypatch, capsys):
    every = [made(tmp_path, "not_recorded-6.1-v2")]
    monkeypatch.setattr(accuracy, "incidents", lambda: every)
    monkeypatch.setattr(accuracy, "PAGE", tmp_path / "page.md")
    assert accuracy.main([]) == 1
    assert "--update" in capsys.readouterr().err
    assert accuracy.main(["--update"]) == 0
    assert accuracy.main([]) == 0


def test_the_bake_off_takes_one_recording_of_each_scene(tmp_path):
    names = ("a-5.10-v1", "a-6.1-v1", "a-7.2-v2", "b-7.2-v2")
    every = [Incident(tmp_path / name) for name in names]
    assert [item.name for item in bakeoff.chosen(every)] == ["a-6.1-v1", "b-7.2-v2"]


@pytest.mark.parametrize(
    ("moments", "wanted"), [((), 0.0), ((50.0,), 0.0), ((50.0, 112.0, 120.0), 12.0)]
)
def test_trouble_begins_with_the_first_moment_inside_the_recording(tmp_path, moments, wanted):
    incident = made(tmp_path, "a-6.1-v2", moments=[WALL_S + moment for moment in moments])
    assert bakeoff.trouble(incident) == pytest.approx(wanted)


def test_what_was_recorded_of_cores_is_shown_and_what_was_not_is_said(tmp_path):
    told = bakeoff.cells(made(tmp_path, "a-6.1-v2", moments=[WALL_S + 110.0]))
    assert tuple(told) == bakeoff.PEERS
    assert told["node-problem-detector"] == "no log recorded"
    assert told["all CPU, a minute's mean"] == "at most 25 % (one second: 25 %)"
    assert told["mpstat -P ALL 1"] == "no core at 90 %"
