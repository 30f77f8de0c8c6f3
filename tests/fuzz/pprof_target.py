"""Fuzz target: pprof."""

from __future__ import annotations

import gzip

from sexton.profile.perf import pprof
from tests.fuzz.reading import read_and_give_on
from tests.support.pprof import small


def one(data: bytes) -> None:
    read_and_give_on(pprof.read, data)


def seeds() -> list[bytes]:
    """Profiles with and without what may be left out."""
    return [small(), gzip.compress(small(), mtime=0), small(labels=False)]
