"""Junk gives rows or `SourceMalformed`, from every pure parser of the cgroup side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.sources.cgroupfs import cpu_stat, residual, stat
from sexton.sources.debugfs import lru_gen
from sexton.sources.tracefs import cgroup_events
from tests.support.examples import examples
from tests.support.fixtures import kernels

PARSERS: dict[str, Callable[[str], object]] = {
    "cgroupfs.stat": partial(stat.parse, path="/a"),
    "cgroupfs.cpu_stat": partial(cpu_stat.parse, path="/a"),
    "cgroupfs.memory_stat": partial(residual.parse, path="/a"),
    "debugfs.lru_gen": lru_gen.parse,
    "tracefs.cgroup_events": cgroup_events.parse,
}


@pytest.mark.parametrize("name", PARSERS)
def test_has_fixtures_of_two_kernels_and_reads_them(name):
    found = kernels(name)
    assert len(found) >= 2
    for path in found:
        parsed = PARSERS[name](path.read_bytes().decode("utf-8", "surrogateescape"))
        if isinstance(parsed, Iterable):
            assert list(parsed)


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=examples(150))
@given(data=st.data())
def test_junk_is_rows_or_malformed_and_never_a_crash(name, data):
    good = kernels(name)[0].read_bytes()[:4000]
    start = data.draw(st.integers(0, len(good)))
    cut = data.draw(st.integers(0, 40))
    digits = st.integers(1, 5000).map(lambda length: b"9" * length)
    junk = good[:start] + data.draw(st.binary(max_size=40) | digits) + good[start + cut :]
    try:
        parsed = PARSERS[name](junk.decode("utf-8", "surrogateescape"))
        if isinstance(parsed, Iterable):
            list(parsed)
    except SourceMalformed:
        pass
