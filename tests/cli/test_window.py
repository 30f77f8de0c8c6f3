"""Moments as people type them."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.cli.window import AROUND_S, add_span, parse_moment, parse_span
from sexton.errors import CommandError

#: 2026-11-15 10:00 to 22:00 UTC.
EDGES = (1_794_736_800.0, 1_794_780_000.0)


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("@1794740000", 1_794_740_000.0),
        ("@1794740000.25", 1_794_740_000.25),
        ("2026-11-15T10:15:00Z", EDGES[0] + 900),
        ("2026-11-15T11:15:00+01:00", EDGES[0] + 900),
        ("2026-11-15 11:15", EDGES[0] + 900),
        (" 11:15 ", EDGES[0] + 900),
        ("11:15:30", EDGES[0] + 930),
        ("23:00", EDGES[1]),
        ("23:00:01", EDGES[1] + 1 - 86400),
        ("20m", EDGES[1] - 1200),
        ("-20min", EDGES[1] - 1200),
        ("1.5h", EDGES[1] - 5400),
        ("2d", EDGES[1] - 172800),
    ],
)
def test_a_moment_is_understood(text: str, seconds: float):
    assert parse_moment(text, EDGES) == seconds


@pytest.mark.parametrize(
    "text", ["", "noon", "25:00", "10:60", "10", "@", "@-1", "٣m", "1e3s", "9" * 400, "\x1b[2J"]
)
def test_what_is_no_moment_is_refused_with_examples(text: str):
    with pytest.raises(CommandError, match=r"invalid time .*: use a time like 10:15"):
        parse_moment(text, EDGES)


@given(st.text())
def test_junk_is_a_number_or_one_clear_refusal(text: str):
    with contextlib.suppress(CommandError):
        assert isinstance(parse_moment(text, EDGES), float)


def span_of(*arguments: str) -> tuple[float, float] | None:
    parser = argparse.ArgumentParser()
    add_span(parser)
    return parse_span(parser.parse_args(arguments), EDGES)


def test_around_takes_five_minutes_on_either_side():
    assert span_of("--around", "11:15") == (EDGES[0] + 900 - AROUND_S, EDGES[0] + 900 + AROUND_S)


def test_a_window_may_lack_either_side():
    assert span_of("--window", "11:15..11:20") == (EDGES[0] + 900, EDGES[0] + 1200)
    assert span_of("--window", "..11:20") == (EDGES[0], EDGES[0] + 1200)
    assert span_of("--window", "11:15..") == (EDGES[0] + 900, EDGES[1])
    assert span_of() is None


def test_a_windows_end_is_the_next_such_time_after_its_start():
    """It was taken for yesterday's if the recording was not that far yet."""
    assert span_of("--window", "22:50..23:10") == (EDGES[1] - 600, EDGES[1] + 600)
    assert span_of("--window", "22:50..00:05") == (EDGES[1] - 600, EDGES[1] + 3900)
    assert span_of("--window", "2026-11-14 23:50..00:10") == (
        EDGES[0] - 40_200, EDGES[0] - 39_000,
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["11:15", "11:20..11:15", "11:20..9:00", "5m..22:50", "x..11:15", "11:15...x"]
)
def test_what_is_no_window_is_refused(text: str):
    with pytest.raises(CommandError):
        span_of("--window", text)
