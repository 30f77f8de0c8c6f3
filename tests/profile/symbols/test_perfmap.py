"""Perf maps of JIT compilers."""

from __future__ import annotations

import numpy as np

from sexton.profile.symbols import symbols
from sexton.profile.symbols.symbols import parse_perf_map
from tests.profile.symbols.programs_of_ours import name_of

TEXT = b"""7f0000001000 40 py::fold:/srv/job one.py
7f0000002000 80 LazyCompile:*fold file.js:1
0x7f0000003000 0x10 prefixed
7f0000002000 20 Function:~newer file.js:2
"""


def test_a_name_is_the_rest_of_the_line():
    assert name_of(parse_perf_map(TEXT), 0x7F0000001010) == "py::fold:/srv/job one.py"
    assert name_of(parse_perf_map(TEXT), 0x7F0000003001) == "prefixed"


def test_of_two_at_one_address_the_later_one_is_there():
    table = parse_perf_map(TEXT)
    assert name_of(table, 0x7F0000002010) == "Function:~newer file.js:2"
    assert name_of(table, 0x7F0000002030) is None


def test_what_makes_no_sense_is_left_out():
    text = b"\xff\xfe\n\n1000\n1000 10\n1000 10 \nzz 10 bad\n11112222333344445 1 wide\n" + TEXT
    assert len(parse_perf_map(text)) == len(parse_perf_map(TEXT))
    assert len(parse_perf_map(b"")) == 0


def test_no_more_lines_are_read_than_a_table_may_have(monkeypatch):
    monkeypatch.setattr(symbols, "MOST_MAP_LINES", 10)
    text = b"".join(b"%x 8 f%d\n" % (4096 + 16 * n, n) for n in range(50))
    assert len(parse_perf_map(text)) == 10


def test_names_that_are_no_utf_8_survive():
    table = parse_perf_map(b"1000 10 \xff\x1b[2J\n")
    assert table.names(np.array([0])) == ["\udcff\x1b[2J"]
