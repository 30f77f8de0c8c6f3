"""A recording that came home is held against what its scene expects."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lab.incident import incidents
from lab.vm import judging, playing, results
from lab.vm.results import Outcome


def home(tmp_path: Path, *, live: dict[str, Any] | None = None, **changes: Any) -> Outcome:
    """An incident of ours as a machine would bring it home; `changes` are to what is expected."""
    found = next(each for each in incidents() if each.place[0] == "leaked_scopes")
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
    one = judging.judged(home(tmp_path))
    assert (one.top, one.live, one.right) == ("leaked_scopes", "-", "yes")
    assert playing.exit_status([one]) == 0
    assert [*results.mistakes([one])] == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"root": "cgroup_churn"}, "top cause leaked_scopes, expected cgroup_churn"),
        ({"exit": 0}, "exit 1, expected 0"),
        ({"present": ["leaked_scopes", "zombie_memcgs"]}, "zombie_memcgs is"),
        (
            {"root": None, "chain": [], "present": [], "absent": [], "exit": 0},
            "a false alarm: leaked_scopes",
        ),
    ],
)
def test_what_the_scene_does_not_expect_is_wrong_and_costs_the_exit(tmp_path, changes, words):
    one = judging.judged(home(tmp_path, **changes))
    assert one.right == "no"
    assert any(words in line for line in results.mistakes([one]))
    assert playing.exit_status([one]) == 1


@pytest.mark.parametrize("chained", [False, True])
def test_what_was_said_live_is_judged_too(tmp_path: Path, chained: bool):
    one = judging.judged(home(tmp_path, live=said("leaked_scopes", 1, chained)))
    assert (one.live, one.right) == ("leaked_scopes", "yes")


@pytest.mark.parametrize(
    ("live", "told"),
    [
        (said("cgroup_churn", 1), "cgroup_churn"),
        (said(None, 0), "healthy"),
        (said("leaked_scopes", 3), "cannot tell"),
    ],
)
def test_a_live_diagnosis_that_is_another_one_is_wrong(tmp_path: Path, live, told: str):
    one = judging.judged(home(tmp_path, live=live))
    assert (one.live, one.right) == (told, "no")
    assert one.wrong == (f"live: {told}, expected leaked_scopes",)


def test_a_folder_that_holds_no_recording_is_wrong_and_no_crash(tmp_path: Path):
    outcome = home(tmp_path)
    (outcome.folder / "scene.json").write_text("{")
    assert judging.judged(outcome).right == "no"
    (outcome.folder / "scene.json").unlink()
    assert "no verdict" in judging.judged(outcome).wrong[0]


def test_what_was_not_played_is_not_judged(tmp_path: Path):
    failed = Outcome("idle", "6.1", "v2", "failed with status 2: no", 3, tmp_path)
    assert judging.judged(failed) == failed
    assert failed.right == "-"
