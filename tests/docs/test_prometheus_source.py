"""The page on judging a node by Prometheus alone says what the code declares and prints."""

from __future__ import annotations

from tests.docs.prometheus_source import PAGE, blocks, made


def test_the_page_is_what_the_code_declares():
    text = PAGE.read_text()
    assert sorted(blocks()) == ["output", "table", "unjudged"]
    assert text == made(text), "python -m tests.docs.prometheus_source writes it anew"
