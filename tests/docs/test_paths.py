"""Paths and links in the docs lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = ("docs/adding-a-detector.md", "docs/adding-a-source.md")
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("[dl]*/README.md")])
_PATH = re.compile(r"\b(?:src|tests|docs)/[\w./-]*[\w/]")
#: The detector that a guide adds; `test_adding_a_detector` writes its files.
_ADDED = "damaged_frames"
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


@pytest.mark.parametrize("guide", GUIDES)
def test_every_path_a_guide_names_exists(guide: str):
    named = sorted(set(_PATH.findall((ROOT / guide).read_text(encoding="utf-8"))))
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists() and _ADDED not in path] == []


def test_links_between_pages_lead_somewhere():
    broken = []
    for page in PAGES:
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_every_module_on_the_path_of_a_sample_exists():
    text = (ROOT / "docs/path-of-a-sample.md").read_text(encoding="utf-8")
    named = sorted(set(re.findall(r"`(?:sexton/)?([a-z_]+/[\w/]+\.(?:py|c))`", text)))
    assert len(named) > 15
    assert [path for path in named if not (ROOT / "src/sexton" / path).exists()] == []


def test_the_map_of_the_code_fits_on_one_screen():
    assert len((ROOT / "docs/flow.md").read_text(encoding="utf-8").splitlines()) <= 45


def test_the_map_of_the_code_has_every_folder():
    text = (ROOT / "docs/flow.md").read_text(encoding="utf-8")
    folders = {path.parent.name for path in (ROOT / "src/sexton").glob("*/__init__.py")}
    assert [name for name in sorted(folders) if f"\n{name}/ " not in text] == []
