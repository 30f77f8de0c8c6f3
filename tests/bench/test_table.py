"""The bench's lines: a promise is kept, missed or not measured, and nothing hides it."""

from __future__ import annotations

import doctest
import importlib

import pytest

from bench.table import Measured, against_limit, spread

MODULES = (
    "__main__",
    "table",
    "recorder.account",
    "recorder.flood",
    "recorder.report",
    "recorder.slowdown",
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_bench_hold(name: str):
    ran = doctest.testmod(importlib.import_module(f"bench.{name}"))
    assert ran.attempted
    assert not ran.failed


def test_a_value_at_its_limit_is_kept_and_one_above_is_missed():
    assert not against_limit("x", 150, 150, "MB", "").missed
    above = against_limit("x", 150.1, 150, "MB", "")
    assert above.missed
    assert "**(missed)**" in above.row()


def test_a_promise_that_could_not_be_measured_is_neither_kept_nor_missed():
    line = against_limit("x", None, 1, "%", "no such verb")
    assert line.unmeasured
    assert not line.missed
    assert "no such verb" in line.row()
    assert "(met)" not in line.row()


def test_a_line_without_a_promise_says_neither():
    line = Measured("x", "1", "a | b", 7.0, None, "for comparison")
    assert not line.missed
    assert not line.unmeasured
    assert line.row() == "| x | 1 | a \\| b | 7.00 | for comparison |"


def test_a_spread_shows_the_worst_round():
    assert spread([1.0, 9.0, 1.0]) == "1.00 (1.00–9.00)"
