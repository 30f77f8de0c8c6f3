"""Tables as matrices: pieces of time, things that come and go, and the order of things."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from sexton.replay.matrix import Matrix, Rows
from sexton.store.runs import Runs, runs_of
from sexton.store.schema import MONO


def table(*rows: tuple[float, int, float]) -> pa.Table:
    """Rows of time, core and value."""
    mono, cpu, value = zip(*rows, strict=True)
    return pa.table({MONO: pa.array(mono, pa.float64()), "cpu": cpu, "value": value})


def of_cores(found: pa.Table, *wanted) -> Matrix:
    return Matrix(Rows(found, runs_of(found, ("cpu",))), *wanted)


SEALED = [(at, cpu, 10 * cpu + at) for cpu in range(3) for at in (1.0, 2.0)]
LATER = [(at, cpu, 10 * cpu + at) for cpu in range(3) for at in (3.0, 4.0, 5.0)]


@pytest.mark.parametrize(
    "rows",
    [
        SEALED,
        [*SEALED, *LATER],  # an hour has several pieces
        [row for row in [*SEALED, *LATER] if row[:2] != (1.0, 0)],  # core 0 came later
        sorted([*SEALED, *LATER]),  # as an open segment has them: reading by reading
        sorted(row for row in [*SEALED, *LATER] if row[:2] != (1.0, 0)),
    ],
)
def test_every_value_is_in_its_place_and_cores_are_in_order(rows):
    made = of_cores(table(*rows))
    assert made.things == [(0,), (1,), (2,)]
    assert made.mono.tolist() == sorted({at for at, _, _ in rows})
    expected = np.full((3, len(made.mono)), np.nan)
    for at, cpu, value in rows:
        expected[cpu, made.mono.tolist().index(at)] = value
    np.testing.assert_array_equal(made.values(["value"])["value"], expected)
    for kept in ([], [0], [1, 3], [0, len(made.mono) - 1], range(len(made.mono))):
        some = np.array([at for at in kept if at < len(made.mono)], np.int64)
        found = made.values(["value", "unread"], some)
        np.testing.assert_array_equal(found["value"], expected[:, some])
        assert found["unread"].shape == (3, len(some))
        assert np.isnan(found["unread"]).all()


def test_times_that_are_known_need_no_column():
    rows = [*SEALED, *LATER]
    found = table(*rows)
    runs = runs_of(found, ("cpu",))
    moments = [
        (np.array([row[0] for row in rows[start:end]]), 1)
        for start, end in pairwise([*runs.starts.tolist(), len(rows)])
    ]
    made = Matrix(Rows(found.drop_columns(["read_mono_s"]), runs, moments))
    expected = of_cores(found)
    assert (made.things, made.mono.tolist()) == (expected.things, expected.mono.tolist())
    np.testing.assert_array_equal(
        made.values(["value"])["value"], expected.values(["value"])["value"]
    )
    nothing = Matrix(Rows(found.slice(0, 0), runs_of(found.slice(0, 0), ("cpu",)), []))
    assert (nothing.things, len(nothing.mono)) == ([], 0)


def test_a_list_that_has_a_thing_twice_at_a_moment_has_a_value_of_it():
    """A list of runs may be wrong: what is read must have the right shape."""
    found = pa.table({"value": [1.0, 2.0, 3.0, 4.0]})
    runs = Runs(np.array([0, 2]), [(0,), (0,)], 4)
    made = Matrix(Rows(found, runs, [(np.array([1.0, 2.0]), 2)]))
    assert (made.things, made.mono.tolist()) == ([(0,)], [1.0, 2.0])
    assert made.values(["value"])["value"].tolist() == [[3.0, 4.0]]


def test_readings_without_a_wanted_thing_are_there_too():
    rows = [*SEALED, *(row for row in LATER if row[1] != 1)]
    made = of_cores(table(*rows), lambda key: key == (1,))
    assert made.things == [(1,)]
    assert made.mono.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    np.testing.assert_array_equal(
        made.values(["value"])["value"], [[11, 12, np.nan, np.nan, np.nan]]
    )


def test_a_thing_that_is_there_twice_in_a_reading_is_taken_once():
    made = of_cores(table((1.0, 0, 5.0), (1.0, 1, 6.0), (1.0, 0, 7.0)))
    assert (made.things, made.values(["value"])["value"].tolist()) == ([(0,), (1,)], [[7.0], [6.0]])
