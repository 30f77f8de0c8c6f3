"""docs/prometheus.md lists every metric."""

from __future__ import annotations

from tests.docs import prometheus


def test_its_table_is_that_of_the_code():
    """If this fails: python -m tests.docs.prometheus"""
    assert prometheus.PAGE.read_text("utf-8") == prometheus.written()
