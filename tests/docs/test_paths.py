"""What the guides point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDES = ("docs/adding-a-detector.md", "docs/adding-a-source.md")
_PATH = re.compile(r"\b(?:src|tests|docs)/[\w./-]*[\w/]")
#: The detector that a guide adds; `test_adding_a_detector` writes its files.
_ADDED = "crowded_core"
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


@pytest.mark.parametrize("guide", GUIDES)
def test_every_path_a_guide_names_exists(guide: str):
    named = sorted(set(_PATH.findall((ROOT / guide).read_text(encoding="utf-8"))))
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists() and _ADDED not in path] == []


def test_links_between_pages_lead_somewhere():
    broken = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for target in _LINK.findall(page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []
