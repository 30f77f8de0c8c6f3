"""docs/explorer.md lists the keys that the page has."""

from __future__ import annotations

import re
from pathlib import Path

from tests.explorer.server.browser.synthetic import PAGE

GUIDE = Path(__file__).parents[4] / "docs/explorer.md"
WORDS = {"ArrowLeft": "←", "ArrowRight": "→", "ArrowUp": "↑", "ArrowDown": "↓", "Escape": "Esc"}
#: As good as another key, or what any button does.
ALSO = {"=", "_", "Enter", "Home", "End", *"2345678"}


def test_the_guide_names_every_key():
    keys = (PAGE / "keys.js").read_text()
    listed = {
        part
        for names in re.findall(r'\[\[((?:"[^"]+"(?:, )?)+)\], "\w+"', keys)
        for name in re.findall(r'"([^"]+)"', names)
        for part in (name.split("+") if len(name) > 1 else [name])
    }
    assert len(listed) > 30
    told = set(re.findall(r"`([^`]+)`", GUIDE.read_text()))
    assert {part for part in listed - ALSO if WORDS.get(part, part) not in told} == set()
