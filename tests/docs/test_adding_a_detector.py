"""`docs/adding-a-detector.md`, followed to the letter in a copy of the package."""

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
NAME = "crowded_core"
#: A path on a line of its own, and the code block below it.
_FILE = re.compile(r"^`((?:src|tests)/[\w/.]+)`:\n\n```\w+\n(.*?)^```$", re.M | re.S)
#: What every surface makes of the page's own fixture, and of a detector that nothing else knows.
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
why = answer(Subject("core", "3"), diagnosis, window)
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


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and what its detectors' tests need, with the files of the page added."""
    place = tmp_path_factory.mktemp("copy")
    bytecode = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", place / "src", ignore=bytecode)
    shutil.copytree(ROOT / "tests" / "support", place / "tests" / "support", ignore=bytecode)
    shutil.copytree(ROOT / "tests" / "detect", place / "tests" / "detect", ignore=bytecode)
    shutil.copytree(
        ROOT / "tests" / "fixtures" / "detectors", place / "tests" / "fixtures" / "detectors"
    )
    (place / "tests" / "__init__.py").touch()
    for path, text in files().items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        assert not (place / path).exists(), f"{path} is there already"
        (place / path).write_text(text, encoding="utf-8")
    run(place, "-m", "sexton.reports.pages", "docs/detectors")
    return place


def run(place: Path, *arguments: str) -> str:
    python_path = os.pathsep.join([str(place / "src"), str(place)])
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def surfaces(copy: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(copy, "-c", _SURFACES))
    return found


def test_the_page_is_one_module_one_folder_of_fixtures_and_one_test():
    kinds = sorted({str(Path(path).parent) for path in files()})
    assert kinds == [
        "src/sexton/detect/detectors",
        "tests/detect/detectors",
        f"tests/fixtures/detectors/{NAME}",
    ]
    assert len(files()) == 5


def test_its_own_test_its_fixtures_and_the_conformance_tests_pass(copy: Path):
    result = run(
        copy, "-m", "pytest", "-q", "--noconftest", "-c", os.devnull, "--rootdir", ".",
        "-p", "no:cacheprovider", f"tests/detect/detectors/test_{NAME}.py",
        "tests/detect/test_detectors.py", "tests/detect/test_conformance.py",
        "-k", f"{NAME} or quoted or relations or essential or belongs",
    )  # fmt: skip
    assert " passed" in result
    assert "failed" not in result


def test_the_verdict_and_the_json_report_it(surfaces: dict[str, Any]):
    words = " ".join(surfaces["verdict"].split())
    assert words.startswith("SICK")
    assert "Core 3 is crowded: 7.0 tasks waited for it for 10.0 s." in words
    assert "which tasks share core 3" in words
    (finding,) = [item for item in surfaces["json"]["findings"] if item["id"] == NAME]
    assert (finding["verdict"], finding["entities"]) == ("present", {"core": ["3"]})


def test_the_explorer_marks_it_on_its_lane(surfaces: dict[str, Any]):
    (mark,) = surfaces["marks"]
    assert (mark["lane"], mark["entity"]) == ("run_queue", "core 3")


def test_why_answers_with_it(surfaces: dict[str, Any]):
    assert NAME in surfaces["asked"]
    words = " ".join(surfaces["why"].split())
    assert words.startswith("SICK core 3")
    assert "Core 3 is crowded" in words


def test_its_page_is_generated(copy: Path):
    page = (copy / "docs" / "detectors" / f"{NAME}.md").read_text(encoding="utf-8")
    assert "| waiting | 300 | % of a core |" in page
    assert "`/proc/schedstat`" in page
    assert f"[{NAME}]({NAME}.md)" in (copy / "docs" / "detectors" / "README.md").read_text()
