"""Rows as columns: each value in the place of its thing and its reading."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sexton.model.rows.memory import VmCounter
from sexton.model.window import Batch, columns_of

NAMES = ("pgfault", "pgscan", "pgsteal", "oom_kill")


@given(
    st.lists(st.lists(st.sampled_from(NAMES), unique=True), min_size=1, max_size=8),
    st.sets(st.sampled_from(NAMES)),
)
def test_things_that_come_go_and_change_places_keep_their_values(readings, left_out):
    batches = [
        Batch(float(at), 100.0 + at, tuple(VmCounter(name, 10 * at + len(name)) for name in names))
        for at, names in enumerate(readings)
    ]
    found = columns_of(batches, VmCounter, ("value",), lambda thing: thing[0] not in left_out)
    assert found is not None
    there = {
        (thing[0], int(mono)): value
        for thing, row in zip(found.things, found.values["value"], strict=True)
        for mono, value in zip(found.mono, row, strict=True)
        if not np.isnan(value)
    }
    assert there == {
        (name, at): 10 * at + len(name)
        for at, names in enumerate(readings)
        for name in names
        if name not in left_out
    }
