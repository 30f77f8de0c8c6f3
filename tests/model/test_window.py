"""Windows: absent is not zero."""

from sexton.model.cpu import CoreTimes
from sexton.model.memory import VmCounter
from sexton.model.window import Batch, SourceState, Window


def test_what_was_never_read_is_none_and_says_why():
    state = SourceState("procfs.stat", "/proc/stat", "denied", "not yours", "sudo")
    window = Window({}, [state], {CoreTimes: "procfs.stat"})
    assert window.batches(CoreTimes) is None
    assert window.latest(CoreTimes) is None
    assert window.all(CoreTimes) is None
    assert window.columns(CoreTimes) is None
    assert window.why_missing(CoreTimes) is state
    assert window.why_missing(VmCounter).state == "absent"


def test_columns_carry_the_time_of_every_row():
    batches = [
        Batch(1.0, 101.0, (VmCounter("a", 1), VmCounter("b", 2))),
        Batch(2.0, 102.0, (VmCounter("a", 3),)),
    ]
    columns = Window({VmCounter: batches}).columns(VmCounter)
    assert columns["time"].tolist() == [1.0, 1.0, 2.0]
    assert columns["value"].tolist() == [1, 2, 3]


def test_a_wall_clock_that_jumped_moves_only_what_came_after_it():
    batches = [Batch(1.0, 101.0, ()), Batch(2.0, 502.0, ())]
    window = Window({VmCounter: batches})
    assert window.wall(1.2) == 101.2
    assert window.wall(1.9) == 501.9
