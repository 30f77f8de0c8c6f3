"""The detectors' pages are what their modules say, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton.detect.registry import Detector, Threshold, all_detectors
from sexton.model.finding import Finding
from sexton.model.rows.cpu import CoreTimes
from sexton.model.window import Window
from sexton.reports.pages import FOLDER, detector_page, index_page, main, pages

DOCS = Path(__file__).parents[2] / FOLDER


def _never(window: Window) -> Finding:
    raise AssertionError("a page is written without looking at a window")


def made(doc: str, **rest) -> Detector:
    return Detector(id="odd_clock", doc=doc, detect=_never, title="odd clock", **rest)


@pytest.mark.parametrize("name", sorted(pages()))
def test_the_page_in_docs_is_the_one_that_would_be_written(name: str):
    assert (DOCS / name).is_file(), "run: make docs"
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], "run: make docs"


def test_no_page_is_left_of_a_detector_that_is_gone():
    assert {path.name for path in DOCS.glob("*.md")} == set(pages())


def test_a_page_has_title_text_thresholds_with_their_reasons_and_sources():
    limit = Threshold("drift", 86400, "s | day", "longer than a day")
    page = detector_page(
        made("Odd.\n\n**What is seen.** X.", thresholds=(limit,), needs=(CoreTimes,))
    )
    assert "# odd_clock\n\nOdd.\n\n**What is seen.** X.\n" in page
    assert "| drift | 86,400 | s \\| day | longer than a day |" in page
    assert "| CoreTimes | `/proc/stat` | procfs.stat |" in page


def test_a_detector_without_needs_or_thresholds_says_so():
    page = detector_page(made("Odd.\n\nNo threshold."))
    assert "Nothing is indispensable" in page
    assert "None: see above why." in page


def test_names_of_other_detectors_are_links_and_code_is_not():
    page = detector_page(made("Odd.\n\nSee `saturated_core`, not ``saturated_core -x`` or `ps`."))
    assert "See [saturated_core](saturated_core.md), not ``saturated_core -x`` or `ps`." in page


def test_the_index_names_every_detector():
    index = index_page(all_detectors())
    for detector in all_detectors():
        assert f"[{detector.id}]({detector.id}.md)" in index


def test_writing_again_changes_nothing_and_removes_only_our_own_stale_pages(tmp_path, capsys):
    assert main([str(tmp_path)]) == 0
    stale = tmp_path / "gone.md"
    stale.write_text((tmp_path / "README.md").read_text())
    note = tmp_path / "note.md"
    note.write_text("by hand")
    capsys.readouterr()
    main([str(tmp_path)])
    assert capsys.readouterr().out == f"{tmp_path}: gone.md\n"
    assert not stale.exists()
    assert note.exists()
    main([str(tmp_path)])
    assert "nothing changed" in capsys.readouterr().out
