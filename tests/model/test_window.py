"""Windows: absent is not zero."""

import numpy as np

from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import VmCounter
from sexton.model.window import Batch, SourceState, Window


def test_what_was_never_read_is_none_and_says_why():
    state = SourceState("procfs.stat", "/proc/stat", "denied", "not yours", "sudo")
    window = Window({}, [state], {CoreTimes: "procfs.stat"})
    assert window.batches(CoreTimes) is None
    assert window.latest(CoreTimes) is None
    assert window.all(CoreTimes) is None
    assert list(window.columns(CoreTimes, ("user_ms",))) == []
    assert not window.read(CoreTimes)
    assert window.bounds_of(CoreTimes) is None
    assert window.why_missing(CoreTimes) is state
    assert window.why_missing(VmCounter).state == "absent"


def test_columns_have_a_row_per_thing_and_a_column_per_reading():
    batches = [
        Batch(1.0, 101.0, (VmCounter("a", 1), VmCounter("b", 2))),
        Batch(2.0, 102.0, (VmCounter("a", 3),)),
        Batch(2.0, 102.0, (VmCounter("a", 4),)),
        Batch(3.0, 103.0, (), follows=False),
    ]
    window = Window({VmCounter: batches})
    (columns,) = window.columns(VmCounter, ("value",))
    assert columns.mono.tolist() == [1.0, 2.0, 3.0]
    assert columns.wall.tolist() == [101.0, 102.0, 103.0]
    assert columns.follows.tolist() == [True, True, False]
    assert columns.things == [("a",), ("b",)]
    assert np.array_equal(columns.values["value"], [[1, 4, np.nan], [2, np.nan, np.nan]], True)
    (some,) = window.columns(VmCounter, ("value",), lambda key: key == ("b",))
    assert some.things == [("b",)]
    assert window.row_count(VmCounter) == 4


def test_between_begins_before_and_ends_after():
    window = Window({VmCounter: [Batch(float(at), 100.0 + at, ()) for at in range(6)]})

    def times(start: float, end: float) -> list[float]:
        return [item.mono_s for item in window.between(VmCounter, start, end)]

    assert times(1.5, 2.5) == [1, 2, 3]
    assert times(2, 3) == [2, 3]
    assert times(-4, 0.5) == [0, 1]
    assert times(4.5, 99) == [4, 5]
    assert window.between(CoreTimes, 0, 1) == ()


def test_a_wall_clock_that_jumped_moves_only_what_came_after_it():
    batches = [Batch(1.0, 101.0, ()), Batch(2.0, 502.0, ())]
    window = Window({VmCounter: batches})
    assert window.wall(1.2) == 101.2
    assert window.wall(1.9) == 501.9
