"""What every source must have: fixtures from two kernels, a test of its own, no trust in junk."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.sources.registry import Source, all_sources
from tests.support.fixtures import kernels

TESTS = Path(__file__).parent
SOURCES = all_sources()
FILES = [source for source in SOURCES if source.parse is not None]


def name(source: Source) -> str:
    return source.id


@pytest.mark.parametrize("source", SOURCES, ids=name)
def test_documents_itself_and_has_a_test(source: Source):
    module = importlib.import_module(f"sexton.sources.{source.id}")
    assert len(module.__doc__ or "") > 200, "say what it is, with an excerpt"
    assert source.rows
    package, _, stem = source.id.rpartition(".")
    assert (TESTS / package.replace(".", "/") / f"test_{stem}.py").is_file()


@pytest.mark.parametrize("source", FILES, ids=name)
def test_reads_fixtures_of_two_kernels(source: Source):
    found = kernels(source.id)
    assert len(found) >= 2, f"{source.id} has fixtures of {[path.stem for path in found]}"
    for path in found:
        rows = list(source.parse(path.read_bytes().decode("utf-8", "surrogateescape")))
        assert rows, path
        assert {type(row) for row in rows} <= set(source.rows)


@pytest.mark.parametrize("source", FILES, ids=name)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_junk_is_rows_or_malformed_and_never_a_crash(source: Source, data: st.DataObject):
    good = kernels(source.id)[0].read_bytes()
    start = data.draw(st.integers(0, len(good)))
    cut = data.draw(st.integers(0, 40))
    junk = good[:start] + data.draw(st.binary(max_size=40)) + good[start + cut :]
    text = data.draw(st.sampled_from([junk, good[:start], data.draw(st.binary(max_size=200))]))
    with contextlib.suppress(SourceMalformed):
        list(source.parse(text.decode("utf-8", "surrogateescape")))
