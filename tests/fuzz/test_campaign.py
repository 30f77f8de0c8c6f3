"""The page about fuzzing has every target, and the counts as they are kept."""

from __future__ import annotations

import json
import zipfile

from tests.fuzz.campaign import COUNTS, PAGE, with_table
from tests.fuzz.corpus import PLACE
from tests.fuzz.running import TARGETS

_MOST_BYTES = 32 << 10


def test_the_page_has_the_counts_that_are_kept():
    """`python -m tests.fuzz.campaign 0` writes it."""
    counts = json.loads(COUNTS.read_text())
    assert with_table(PAGE.read_text(), counts) == PAGE.read_text()
    assert {*TARGETS} <= {*counts}


def test_the_page_says_what_every_target_reads():
    lines = PAGE.read_text().partition("<!--")[0].splitlines()
    first = [line.split("|")[1] for line in lines if line.startswith("| ")]
    assert {*TARGETS} <= {name.strip() for cell in first for name in cell.split(",")}


def test_what_is_kept_in_the_repository_is_small():
    for path in PLACE.glob("*.zip"):
        with zipfile.ZipFile(path) as packed:
            assert path.stem in TARGETS
            assert len(packed.namelist()) > 0
            assert sum(entry.file_size for entry in packed.infolist()) <= _MOST_BYTES
