"""Which rows a claim stands on: noted where they are read, and cheaply."""

from __future__ import annotations

from types import FunctionType

from sexton.detect.registry import all_detectors, run_all
from sexton.detect.rows_read import Witness, remembered, witness
from sexton.model.finding import Rows
from sexton.model.row import table
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.node import Node
from sexton.model.window import Batch, Window
from sexton.replay.window import RecordedWindow
from tests.support.incident import incident

NODE = Node("n", "6.1", *(None,) * 11)


class Counted(tuple):
    """Rows that must not be walked again only to be counted."""

    def __iter__(self):
        raise AssertionError("the rows were read one by one")


def made() -> Window:
    rows = Counted([VmCounter("a", 1), VmCounter("b", 1)])
    return Window(
        {
            VmCounter: [Batch(float(at), 100.0 + at, rows) for at in range(5)],
            Node: [Batch(0.0, 100.0, (NODE,)), Batch(4.0, 104.0, (NODE,))],
            CoreTimes: [Batch(1.0, 101.0, ())],
        }
    )


def test_what_was_read_is_noted_without_walking_it():
    seen = Witness(made())
    with seen.noting() as noted:
        seen.batches(VmCounter)
        assert seen.node == NODE
        assert seen.latest(CoreTimes) == ()
        assert seen.batches(type(NODE)) is not None
    assert seen.rows(noted) == (
        Rows("core_times", 0, 101.0, 101.0),
        Rows("node", 2, 100.0, 104.0),
        Rows("vm_counter", 10, 100.0, 104.0),
    )


def test_the_last_reading_alone_is_told_apart_from_all_of_them():
    seen = Witness(made())
    with seen.noting() as noted:
        seen.latest(VmCounter)
    assert seen.rows(noted) == (Rows("vm_counter", 2, 104.0, 104.0),)


def test_what_was_never_read_and_what_was_not_asked_for_is_not_noted():
    seen = Witness(Window({Node: [Batch(0.0, 0.0, (NODE,))]}))
    with seen.noting() as noted:
        assert seen.batches(CoreTimes) is None
    assert seen.rows(noted) == ()


def test_notes_inside_notes_are_both_given():
    seen = Witness(made())
    with seen.noting() as outer:
        with seen.noting() as inner:
            seen.latest(Node)
        seen.batches(VmCounter)
    assert (set(inner), set(outer)) == ({Node}, {Node, VmCounter})


def test_an_answer_that_was_kept_counts_for_everybody_who_asks():
    calls = []

    @remembered
    def computed(window: Window) -> int:
        calls.append(window)
        return len(window.batches(VmCounter) or ())

    seen = Witness(made())
    for _ in range(2):
        with seen.noting() as noted:
            assert computed(seen) == 5
        assert set(noted) == {VmCounter}
    assert len(calls) == 1
    plain = made()
    assert (computed(plain), computed(plain), len(calls)) == (5, 5, 2)


def test_a_witness_is_the_same_window():
    window = incident()
    seen = witness(window)
    assert witness(seen) is seen
    assert (seen.start, seen.end, seen.states) == (window.start, window.end, window.states)
    assert seen.batches(CoreTimes) == window.batches(CoreTimes)
    assert seen.wall(698_003.0) == window.wall(698_003.0)
    assert seen.why_missing(CoreTimes) == window.why_missing(CoreTimes)


def test_every_way_to_read_a_recording_is_passed_on():
    """What is not goes through `batches`, which makes every row of the table: a hundred times the
    time for one process in a state."""
    ways = {
        name
        for name, way in vars(RecordedWindow).items()
        if isinstance(way, FunctionType) and not name.startswith("_")
    }
    assert "matching" in ways
    assert ways - set(vars(Witness)) == set()


def test_every_finding_that_judged_something_names_its_rows():
    window = incident()
    for finding in run_all(window):
        for rows in finding.rows:
            assert window.start <= rows.start <= rows.end <= window.end
            assert rows.rows >= 0
    held = next(item for item in run_all(window) if item.id == "saturated_core")
    assert {row.table for row in held.rows} >= {"core_times", "thread"}


def test_each_detector_notes_at_least_what_it_cannot_do_without():
    window = incident()
    for detector in all_detectors():
        finding = detector.run(window)
        if all(window.batches(kind) is not None for kind in detector.needs):
            assert {row.table for row in finding.rows} >= {table(kind) for kind in detector.needs}
        else:
            assert finding.rows == ()
