"""What every detector must have: a page, thresholds with reasons, three cases, a test; and that
nothing else in the package knows a detector by its id."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import sexton
from sexton.detect import kernel_log
from sexton.detect.registry import Detector, all_detectors
from sexton.explain.registry import all_rules
from sexton.explain.subject import KINDS
from sexton.explorer.tiles.registry import all_lanes
from sexton.model.window import Window
from sexton.sources.kmsg.catalogue import patterns
from tests.support.fixtures import FIXTURES
from tests.support.windows import load_window

TESTS = Path(__file__).parent
DOCS = TESTS.parents[1] / "docs" / "detectors"
SECTIONS = (
    "**What is seen.**",
    "**Why it hurts.**",
    "**What would make it wrong.**",
    "**Check by hand.**",
    "**What to do.**",
)

each_detector = pytest.mark.parametrize("detector", all_detectors(), ids=lambda each: each.id)


@each_detector
def test_the_docstring_is_a_runbook_page(detector: Detector):
    places = [detector.doc.find(section) for section in SECTIONS]
    lacking = [section for section, place in zip(SECTIONS, places, strict=True) if place < 0]
    assert not lacking
    assert places == sorted(places), "sections in the order every page has"
    assert detector.headline.endswith("."), "the first line is a sentence"


@each_detector
def test_thresholds_say_why_or_the_page_says_why_there_are_none(detector: Detector):
    if not detector.thresholds:
        assert "no threshold" in detector.doc.lower()
    for threshold in detector.thresholds:
        assert threshold.name
        assert threshold.unit
        assert len(threshold.why) > 10, threshold
    names = [threshold.name for threshold in detector.thresholds]
    assert len(names) == len(set(names))


@each_detector
def test_has_a_present_an_absent_and_an_unknown_case(detector: Detector):
    for verdict in ("present", "absent", "unknown"):
        path = FIXTURES / "detectors" / detector.id / f"{verdict}.json"
        assert path.is_file(), f"no {path.relative_to(FIXTURES)}"
        _, expect = load_window(path)
        assert expect["verdict"] == verdict


@each_detector
def test_has_a_test_and_a_page_of_its_own(detector: Detector):
    assert (TESTS / "detectors" / f"test_{detector.id}.py").is_file()
    assert (DOCS / f"{detector.id}.md").is_file(), "write it with `make docs`"


def test_no_fixture_folder_belongs_to_nobody():
    folders = {path.name for path in (FIXTURES / "detectors").iterdir() if path.is_dir()}
    assert folders <= {detector.id for detector in all_detectors()}


@each_detector
def test_its_module_is_small_and_pure(detector: Detector):
    module = importlib.import_module(detector.detect.__module__)
    lines = Path(module.__file__ or "").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 600
    imports = [line for line in lines if line.startswith(("import sexton", "from sexton"))]
    allowed = ("from sexton.model", "from sexton.series", "from sexton.detect")
    assert all(line.startswith(allowed) for line in imports)


@each_detector
def test_it_declares_what_it_is_called_and_where_it_is_seen(detector: Detector):
    module = importlib.import_module(detector.detect.__module__)
    assert detector.id == module.NAME
    assert detector.title
    assert not detector.title.endswith(".")
    assert len(detector.title) <= 30, "it has to fit into a list"
    assert detector.lanes
    assert {*detector.lanes} <= {lane.id for lane in all_lanes()}
    assert {*(detector.answers or ())} <= {*KINDS}


@each_detector
def test_a_finding_names_only_the_kinds_of_things_it_declares(detector: Detector):
    for path in (FIXTURES / "detectors" / detector.id).glob("*.json"):
        window, _ = load_window(path)
        assert {*detector.run(window).entities} <= {*detector.about}, path.name


def test_relations_name_detectors_that_exist():
    known = {detector.id for detector in all_detectors()}
    for detector in all_detectors():
        assert {detector.mimics, detector.yields_to} - {""} <= known, detector.id


def test_essential_detectors_have_a_rank_each():
    ranks = sorted(detector.essential for detector in all_detectors() if detector.essential)
    assert ranks == list(range(1, len(ranks) + 1))


def test_an_event_belongs_to_one_detector():
    kinds = [kind for detector in all_detectors() for kind in detector.events]
    assert len(kinds) == len({*kinds})


@each_detector
def test_it_declares_the_kernel_lines_that_it_reads(
    detector: Detector, monkeypatch: pytest.MonkeyPatch
):
    """Unless another declares them: the explorer marks each on one lane."""
    read: set[str] = set()
    lines = kernel_log.lines

    def noted(window: Window, families: Iterable[str]) -> list[kernel_log.Line]:
        read.update(families)
        return lines(window, families)

    monkeypatch.setattr(kernel_log, "lines", noted)
    for path in (FIXTURES / "detectors" / detector.id).glob("*.json"):
        detector.run(load_window(path)[0])
    others = {kind for other in all_detectors() if other != detector for kind in other.events}
    assert read <= {*detector.events} | others
    logged = {pattern.family for pattern in patterns()}
    assert {*detector.events} & logged <= read


@each_detector
def test_a_plan_treats_it_or_says_what_to_do_instead(detector: Detector):
    assert not (detector.treatments and detector.plan_note)


def test_no_id_is_quoted_outside_its_own_module():
    """Everything else goes through the registries, compares a link's ends, or imports the module's
    `NAME`. Only links quote detectors. A detector's docstring is its page, a link's its rule, and
    those refer to each other."""
    root = Path(sexton.__file__).parent
    links = {rule.id for rule in all_rules()}
    detectors = {detector.id for detector in all_detectors()}
    quoted = []
    for path in sorted(root.rglob("*")):
        part = path.relative_to(root)
        is_page = part.parts[:2] == ("detect", "detectors")
        is_link = part.parts[:2] == ("explain", "links")
        foreign = links | (set() if is_link else detectors)
        foreign -= {path.stem} if is_page or is_link else set()
        for line, text in _texts(path, is_page or is_link):
            names = {*re.findall(r"\w+", text)} & foreign
            quoted += [f"{part}:{line}: {name}" for name in sorted(names)]
    assert not quoted


def _texts(path: Path, is_page: bool) -> Iterator[tuple[int, str]]:
    """Strings and docstrings of a Python file, and the whole of what a browser reads."""
    if path.suffix in (".js", ".html", ".css"):
        yield from enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    if path.suffix != ".py":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    page = ast.get_docstring(tree, clean=False) if is_page else None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != page:
            yield node.lineno, node.value
