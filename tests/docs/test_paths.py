"""Paths and links in the docs lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = ("docs/adding-a-detector.md", "docs/adding-a-source.md")
PAGES = sorted(
    [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("[dl]*/**/README.md")]
)
_PATH = re.compile(r"\b(?:src|tests|docs)/[\w./-]*[\w/]")
#: The detector that a guide adds; `test_adding_a_detector` writes its files.
_ADDED = "damaged_frames"
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?")
_FENCE = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("guide", GUIDES)
def test_every_path_a_guide_names_exists(guide: str):
    named = sorted(set(_PATH.findall((ROOT / guide).read_text(encoding="utf-8"))))
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists() and _ADDED not in path] == []


def test_links_between_pages_lead_somewhere():
    broken = []
    for page in PAGES:
        for target, heading in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
            there = page.parent / target if target else page
            if not there.exists() or (heading and heading not in anchors(there)):
                broken.append(f"{page.relative_to(ROOT)}: {target}#{heading}")
    assert broken == []


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub makes them, and those that it sets itself."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    found: set[str] = set(re.findall(r"""<a (?:id|name)=["']([^"']+)""", text))
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", text, re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found.add(next(each for each in _numbered(name) if each not in found))
    return found


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}-{number}" for number in count(1))


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
