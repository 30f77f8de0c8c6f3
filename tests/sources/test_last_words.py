"""The journal's newest line of each unit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent
from sexton.host.host import Host
from sexton.host.reader import RootedFiles
from sexton.sources.last_words import last_words, parse


def line(unit: object, wall_us: object) -> str:
    return json.dumps({"_SYSTEMD_UNIT": unit, "__REALTIME_TIMESTAMP": wall_us})


def test_the_newest_line_of_each_unit_counts_in_any_order():
    lines = [
        line("a.service", "3000000"),
        line("a.service", "2000000"),
        line("b.service", "1000000"),
    ]
    assert parse("\n".join(lines)) == {"a.service": 3.0, "b.service": 1.0}


@pytest.mark.parametrize(
    "junk", ["", "{}", "[]", "no", line(None, "1"), line("a", "x"), line("a", 5)]
)
def test_junk_lines_are_passed_over(junk: str):
    assert parse(f"{junk}\n{line('b.service', '1000000')}") == {"b.service": 1.0}


def test_a_tree_without_a_journal_has_none(tmp_path: Path):
    with pytest.raises(SourceAbsent):
        last_words(Host(RootedFiles(str(tmp_path)), live=False, root=str(tmp_path)))


@given(st.text(max_size=300))
def test_junk_never_breaks_it(text: str):
    parse(text)
