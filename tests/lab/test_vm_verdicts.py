"""A recording that came home is held against what its scene expects."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lab.incident import incidents
from lab.vm import results, runs, verdicts
from lab.vm.results import Outcome


def home(tmp_path: Path, *, live: dict[str, Any] | None = None, **changes: Any) -> Outcome:
    """An incident of ours as a machine would bring it home; `changes` are to what is expected."""
    found = next(incident for incident in incidents() if incident.key[0] == "leaked_scopes")
    folder = tmp_path / "home"
    shutil.copytree(found.recording, folder)
    scene = found.scene | {"expected": found.scene["expected"] | changes}
    if live is not None:
        scene["live"] = {"root": "leaked_scopes"}
        (folder / "live.json").write_text(json.dumps(live))
    (folder / "scene.json").write_text(json.dumps(scene))
    return Outcome("leaked_scopes", "6.1", "v2", "played", 41, folder)


def said(root: str | None, status: int, chained: bool = False) -> dict[str, Any]:
    finding = {"id": root, "verdict": "present", "severity": "warning"}
    note = {"id": "noted", "verdict": "present", "severity": "info"}
    chains = [{"root": root}] if chained else []
    return {"exit": status, "findings": [note, finding] if root else [note], "chains": chains}


def test_a_right_diagnosis_is_right(tmp_path: Path):
    one = verdicts.with_verdict(home(tmp_path))
    assert (one.top, one.live, one.right) == ("leaked_scopes", "-", "yes")
    assert runs.exit_status([one]) == 0
    assert [*results.mistakes([one])] == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"root": "cgroup_churn"}, "top cause leaked_scopes, expected cgroup_churn"),
        ({"exit": 0}, "exit 1, expected 0"),
        ({"present": ["leaked_scopes", "zombie_memcgs"]}, "zombie_memcgs is"),
        (
            {"root": None, "chain": [], "present": [], "absent": [], "exit": 0},
            "false alarm: leaked_scopes",
        ),
    ],
)
def test_what_the_scene_does_not_expect_is_wrong_and_costs_the_exit(tmp_path, changes, words):
    one = verdicts.with_verdict(home(tmp_path, **changes))
    assert one.right == "no"
    assert any(words in line for line in results.mistakes([one]))
    assert runs.exit_status([one]) == 1


@pytest.mark.parametrize("chained", [False, True])
def test_what_was_said_live_is_judged_too(tmp_path: Path, chained: bool):
    one = verdicts.with_verdict(home(tmp_path, live=said("leaked_scopes", 1, chained)))
    assert (one.live, one.right) == ("leaked_scopes", "yes")


@pytest.mark.parametrize(
    ("live", "text"),
    [
        (said("cgroup_churn", 1), "cgroup_churn"),
        (said(None, 0), "healthy"),
        (said("leaked_scopes", 3), "cannot tell"),
    ],
)
def test_a_live_diagnosis_that_is_another_one_is_wrong(tmp_path: Path, live, text: str):
    one = verdicts.with_verdict(home(tmp_path, live=live))
    assert (one.live, one.right) == (text, "no")
    assert one.wrong == (f"live: {text}, expected leaked_scopes",)


def test_a_folder_that_holds_no_recording_is_wrong_and_no_crash(tmp_path: Path):
    outcome = home(tmp_path)
    (outcome.folder / "scene.json").write_text("{")
    assert verdicts.with_verdict(outcome).right == "no"
    (outcome.folder / "scene.json").unlink()
    assert "no verdict" in verdicts.with_verdict(outcome).wrong[0]


def test_what_was_not_played_is_not_judged(tmp_path: Path):
    failed = Outcome("idle", "6.1", "v2", "failed with status 2: no", 3, tmp_path)
    assert verdicts.with_verdict(failed) == failed
    assert failed.right == "-"


def check(tmp_path: Path, result: str | None, said: str = "played") -> Outcome:
    """A check that came home with such a result."""
    folder = tmp_path / "home"
    folder.mkdir()
    if result is not None:
        (folder / "cure.json").write_text(result)
    return Outcome("check_cure", "6.1", "v2", said, 41, folder)


def test_a_check_is_right_when_its_own_result_says_so(tmp_path: Path):
    claims = [{"id": "found"}, {"id": "freed"}]
    one = verdicts.with_verdict(check(tmp_path, json.dumps({"claims": claims, "failed": {}})))
    assert (one.top, one.right) == ("2 of 2 hold", "yes")
    assert runs.exit_status([one]) == 0
    assert "2 of 2 hold" in results.table([one])


def test_a_check_that_failed_says_what_of_it_did(tmp_path: Path):
    document = {
        "claims": [{"id": "freed"}, {"id": "found"}],
        "failed": {"freed": ["not\x1b[1m so"]},
    }
    one = verdicts.with_verdict(
        check(tmp_path, json.dumps(document), "failed with status 1: 3 of 4")
    )
    assert (one.top, one.right) == ("1 of 2 hold", "no")
    assert [*results.mistakes([one])] == ["check_cure on 6.1 v2: freed: not\\x1b[1m so"]
    assert runs.exit_status([one]) == 1


@pytest.mark.parametrize(
    "result", [None, "{", "[]", "{}", '{"failed": 3}', '{"failed": {"x": 3}}', '"failed"']
)
def test_a_check_without_a_result_that_can_be_read_is_wrong_and_no_crash(tmp_path, result):
    one = verdicts.with_verdict(check(tmp_path, result))
    assert one.right == "no"
    assert "no verdict" in one.wrong[0]
    assert runs.exit_status([one]) == 1


def test_a_check_that_never_came_to_a_result_is_told_by_its_own_words(tmp_path: Path):
    one = check(tmp_path, None, "did not end in time: holds image_passes")
    assert verdicts.with_verdict(one) == one
    assert runs.exit_status([one]) == 1


def test_a_check_that_has_no_place_there_is_no_mistake(tmp_path: Path):
    one = Outcome("check_cure", "7.x", "v2", "cannot be played here", 9, tmp_path, unfit=True)
    assert verdicts.with_verdict(one) == one
    assert runs.exit_status([one]) == 3
