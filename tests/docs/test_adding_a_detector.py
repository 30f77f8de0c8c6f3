"""`docs/adding-a-detector.md`, followed to the letter in a copy of the tree."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "adding-a-detector.md"
NAME = "damaged_frames"
#: A path on a line of its own, and the code block below it.
_FILE = re.compile(r"^`((?:src|tests)/[\w/.]+)`:\n\n```\w+\n(.*?)^```$", re.M | re.S)
#: A block of commands.
_COMMANDS = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
#: The one recording of the copy: an idle node, the smallest.
_INCIDENT = "idle-6.1-v2"
#: What the targets run, since the copy has no environment of its own. Of the recorded incidents
#: only one is written anew: all of them take minutes.
_TARGETS = {
    "make docs": ("-m sexton.reports.pages", "-m sexton.cli.manual"),
    "make golden-update": (f"-m lab.golden --update {_INCIDENT}",),
}
#: What every surface makes of the page's own fixture.
_SURFACES = f"""
import json
from pathlib import Path
from sexton.explain.diagnosis import diagnose
from sexton.explain.why import answer
from sexton.explorer.tiles.questions import finding_marks
from sexton.model.why import Subject
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.reports.text.verdict import verdict_text
from sexton.reports.text.why import why_text
from tests.support.windows import load_window

window, _ = load_window(Path("tests/fixtures/detectors/{NAME}/present.json"))
diagnosis = diagnose(window)
why = answer(Subject("nic", "eth0"), diagnosis, window)
print(json.dumps({{
    "verdict": verdict_text(diagnosis),
    "json": diagnosis_json(diagnosis),
    "marks": [mark._asdict() for mark in finding_marks(diagnosis)],
    "why": why_text(why),
    "asked": why.detectors,
}}))
"""


def files() -> dict[str, str]:
    return dict(_FILE.findall(PAGE.read_text(encoding="utf-8")))


def commands() -> list[str]:
    blocks = _COMMANDS.findall(PAGE.read_text(encoding="utf-8"))
    return [line for block in blocks for line in block.splitlines()]


def run(place: Path, *arguments: str) -> str:
    python_path = os.pathsep.join([str(place / "src"), str(place)])
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def follow(place: Path, command: str) -> str:
    """A command of the page, with this interpreter for the one of `.venv`."""
    if command in _TARGETS:
        return "".join(run(place, *one.split()) for one in _TARGETS[command])
    program, *arguments = command.split()
    assert program == ".venv/bin/python"
    return run(place, *arguments)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree with one recorded incident, and with the files of the page added."""
    place = tmp_path_factory.mktemp("copy")
    others = {path.name for path in (ROOT / "tests/incidents").iterdir() if path.is_dir()}
    ignored = shutil.ignore_patterns("__pycache__", *(others - {_INCIDENT}))
    for folder in ("src", "tests", "docs", "man", "lab"):
        shutil.copytree(ROOT / folder, place / folder, symlinks=True, ignore=ignored)
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, place / name)
    for path, text in files().items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        assert not (place / path).exists(), f"{path} is there already"
        (place / path).write_text(text, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def written(copy: Path) -> Path:
    """The copy after the commands that write generated pages."""
    *writing, _check = commands()
    assert len(writing) == 4
    for command in writing:
        follow(copy, command)
    return copy


@pytest.fixture(scope="module")
def surfaces(copy: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(copy, "-c", _SURFACES))
    return found


def test_the_page_is_one_module_one_folder_of_fixtures_and_one_test():
    kinds = sorted({str(Path(path).parent) for path in files()})
    assert kinds == [
        "src/sexton/detect/detectors/network",
        "tests/detect/detectors",
        f"tests/fixtures/detectors/{NAME}",
    ]
    assert len(files()) == 5


def test_the_targets_run_what_they_run_here():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target, runs in _TARGETS.items():
        recipe = re.search(rf"^{target.removeprefix('make ')}:.*\n((?:\t.*\n)+)", text, re.M)
        assert recipe is not None
        assert all(f"/python {one.removesuffix(f' {_INCIDENT}')}\n" in recipe[1] for one in runs)


@pytest.mark.whole
def test_its_check_command_passes(written: Path):
    result = follow(written, commands()[-1])
    assert " passed" in result
    assert "failed" not in result


def test_the_expected_output_has_one_check_more(written: Path):
    found = (written / "tests/incidents" / _INCIDENT / "diagnosis.json").read_text("utf-8")
    ids = {finding["id"] for finding in json.loads(found)["findings"]}
    before = (ROOT / "tests/incidents" / _INCIDENT / "diagnosis.json").read_text("utf-8")
    assert ids - {finding["id"] for finding in json.loads(before)["findings"]} == {NAME}


def test_the_verdict_and_the_json_report_it(surfaces: dict[str, Any]):
    words = " ".join(surfaces["verdict"].split())
    assert words.startswith("SICK")
    assert "200 frames (2 %) arrived damaged on eth0 in 5.0 s." in words
    assert "what is wrong with frames on eth0" in words
    (finding,) = [item for item in surfaces["json"]["findings"] if item["id"] == NAME]
    assert (finding["verdict"], finding["entities"]) == ("present", {"nic": ["eth0"]})


def test_the_explorer_marks_it_on_its_lane(surfaces: dict[str, Any]):
    (mark,) = surfaces["marks"]
    assert (mark["lane"], mark["entity"]) == ("nic_faults", "eth0")


def test_why_answers_with_it(surfaces: dict[str, Any]):
    assert NAME in surfaces["asked"]
    words = " ".join(surfaces["why"].split())
    assert words.startswith("SICK eth0")
    assert "200 frames (2 %) arrived damaged on eth0" in words


def test_its_page_is_generated(written: Path):
    page = (written / "docs" / "detectors" / f"{NAME}.md").read_text(encoding="utf-8")
    assert "| share | 0.01 | % of frames |" in page
    assert "`/proc/net/dev`" in page
    assert f"[{NAME}]({NAME}.md)" in (written / "docs" / "detectors" / "README.md").read_text()
