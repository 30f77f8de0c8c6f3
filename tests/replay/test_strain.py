"""Of hours of memory counters a few readings are enough: the same stretches, the same totals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.detect import paging, pressure
from sexton.detect.detectors import direct_reclaim, memory_pressure, page_fault_storm
from sexton.detect.runs import Run, runs
from sexton.model.cpu import CoreTimes
from sexton.model.memory import Pressure, VmCounter
from sexton.model.window import Batch
from sexton.replay import span, strain
from sexton.replay.choice import Choice
from sexton.replay.span_reader import Shelf
from sexton.store.recording import Recording
from tests.support.examples import examples
from tests.support.recordings import WALL_S, scratch, write_open, write_sealed

Readings = list[Batch[Any]]
_RATES = st.sampled_from((0, 400, 999, 1000, 5000, 250_000))


@st.composite
def counted(draw: st.DrawFn) -> Readings:
    """Counters around every limit, by two scanners."""
    sums = dict.fromkeys(("pgscan_kswapd", "pgscan_file", "pgfault", "pgmajfault", "nr_dirty"), 9)
    return list(_readings(draw, sums))


@st.composite
def told(draw: st.DrawFn) -> Readings:
    some = full = 100
    made, at = [], 100.0
    for _ in range(draw(st.integers(1, 30))):
        at += draw(st.sampled_from((0.9, 1.0, 1.0, 1.25)))
        some += draw(st.sampled_from((0, 49_000, 60_000, 110_000, 900_000)))
        full += draw(st.sampled_from((0, 51_000, 600_000)))
        rows = [("io", "some", 5 * some), ("memory", "some", some), ("memory", "full", full)]
        made.append(
            Batch(at, WALL_S + at, tuple(Pressure(a, b, 0.0, 0.0, 0.0, c) for a, b, c in rows))
        )
    return made


def _readings(draw: st.DrawFn, sums: dict[str, int]) -> Any:
    at = 100.0
    for _ in range(draw(st.integers(1, 30))):
        at += draw(st.sampled_from((0.9, 1.0, 1.0, 1.25)))
        kswapd = draw(st.sampled_from((0, 70_000)))
        sums["pgscan_kswapd"] += kswapd
        sums["pgscan_file"] += kswapd + draw(_RATES)
        sums["pgfault"] += draw(_RATES)
        sums["pgmajfault"] += draw(_RATES)
        rows = tuple(VmCounter(name, value) for name, value in sums.items())
        yield Batch(at, WALL_S + at, rows)


def written(place: Path, batches: Readings, parts: int, lost: int = -1) -> Shelf:
    """The same readings in so many segments, the last of them open; one may be lost."""
    kind = type(batches[0].rows[0])
    size = -(-len(batches) // parts)
    pieces = [batches[at : at + size] for at in range(0, len(batches), size)]
    for sequence, piece in enumerate(pieces, 1):
        if sequence != lost:
            put = write_open if sequence == len(pieces) else write_sealed
            put(place, [{kind: piece}], sequence)
    recording = Recording(place)
    return Shelf(recording, span.everything(recording))


def short(run: Run[Any]) -> tuple[float, float]:
    return run.start, run.end


@given(counted(), st.integers(1, 4))
@settings(max_examples=examples(60), deadline=None)
def test_every_stretch_of_reclaim_and_faults_is_found_again_with_its_totals(
    batches: Readings, parts: int
):
    with scratch() as place:
        shelf = written(place, batches, parts)
        found = strain.of_paging(shelf, 2)
        choice = Choice(shelf)
        choice.edges(VmCounter)
        choice.strain(VmCounter, found)
        kept = choice.take(VmCounter)[VmCounter]
    limits = {
        "by_tasks": direct_reclaim.NOTED.value,
        "major": page_fault_storm.MAJOR.value,
        "faults": 2 * page_fault_storm.MINOR.value,
    }
    for name, limit in limits.items():
        assert stretches(kept, name, limit) == stretches(batches, name, limit), name


def stretches(batches: Readings, name: str, limit: float) -> list[tuple[float, float, int]]:
    def amount(step: paging.PagingStep) -> int:
        return (step.by_tasks if name == "by_tasks" else step.moved.get(name)) or 0

    steps = paging.steps(list(paging.readings_of(batches)))
    made = runs(steps, lambda step: amount(step) / step.seconds >= limit)
    return [(*short(run), sum(map(amount, run.steps))) for run in made]


@given(told(), st.integers(1, 4))
@settings(max_examples=examples(60), deadline=None)
def test_the_worst_pressure_is_found_again(batches: Readings, parts: int):
    with scratch() as place:
        shelf = written(place, batches, parts)
        choice = Choice(shelf)
        choice.edges(Pressure)
        choice.strain(Pressure, strain.of_pressure(shelf))
        kept = choice.take(Pressure)[Pressure]
    assert worst(kept) == worst(batches)
    assert stalled(kept) == stalled(batches)


def worst(batches: Readings) -> Any:
    found = memory_pressure.worst_of(pressure.stalls(list(pressure.levels_of(batches))))
    return None if found is None else (*short(found.run), found.severity)


def stalled(batches: Readings) -> list[tuple[float, float]]:
    return [short(run) for run in pressure.stalled_in(list(pressure.levels_of(batches)))]


def reclaiming(number: int) -> Readings:
    return [
        Batch(100.0 + at, WALL_S + 100 + at, (VmCounter("pgscan_direct", 5000 * at),))
        for at in range(number)
    ]


def test_over_a_stretch_that_was_not_recorded_nothing_is_joined():
    batches = reclaiming(40)
    with scratch() as place:
        shelf = written(place, batches, 4, lost=2)
        found = strain.of_paging(shelf, 2)
    assert found.spans == ((100.0, 109.0), (120.0, 139.0))


def test_an_hour_of_reclaim_is_two_readings():
    with scratch() as place:
        shelf = written(place, reclaiming(3600), 3)
        found = strain.of_paging(shelf, None)
    assert found.moments == (100.0, 3699.0)
    assert found.names == {"pgscan_direct"}


def test_limits_crossed_without_end_leave_the_longest_stretches():
    def value(at: int) -> int:  # every third second is calm, and one stretch is long
        return 5000 * (at - at // 3 if at < 7000 else 4667 + at - 7000)

    batches = [
        Batch(100.0 + at, WALL_S + at, (VmCounter("pgscan_direct", value(at)),))
        for at in range(7100)
    ]
    with scratch() as place:
        found = strain.of_paging(written(place, batches, 3), None)
    assert found.cut
    assert len(found.moments) <= 2_002
    assert max(end - start for start, end in found.spans) >= 98


def bursts(number: int, at: set[int], each: int = 5) -> list[Readings]:
    """A calm counter in so many segments, with seconds in which it runs."""
    value, made = 0, []
    for second in range(number * each):
        value += 1200 if second in at else 1
        row = VmCounter("pgscan_direct", value)
        made.append(Batch(100.0 + second, WALL_S + 100 + second, (row,)))
    return [made[first : first + each] for first in range(0, len(made), each)]


def opened(place: Path, segments: list[Readings]) -> tuple[Shelf, list[int]]:
    """Written down; and which segments are opened for it from now on."""
    for sequence, piece in enumerate(segments, 1):
        write_sealed(place, [{VmCounter: piece}], sequence)
    recording = Recording(place)
    seen: list[int] = []
    shelf = Shelf(recording, span.everything(recording))
    for book in shelf.books:
        book.segment.table = noting(seen, book.segment)  # type: ignore[method-assign]
    return shelf, seen


def noting(seen: list[int], segment: Any) -> Any:
    table = segment.table

    def noted(*arguments: Any, **options: Any) -> Any:
        seen.append(segment.sequence)
        return table(*arguments, **options)

    return noted


def test_of_a_calm_night_few_segments_are_opened():
    with scratch() as place:
        shelf, seen = opened(place, bursts(65, set()))
        assert strain.of_paging(shelf, None).spans == ()
    assert len(seen) <= 6


@given(st.sets(st.integers(1, 199), max_size=60))
@settings(max_examples=examples(15), deadline=None)
def test_a_stretch_that_lasts_is_found_wherever_it_hides(at: set[int]):
    segments = bursts(40, at)
    with scratch() as place:
        shelf, _ = opened(place, segments)
        choice = Choice(shelf)
        choice.edges(VmCounter)
        choice.strain(VmCounter, strain.of_paging(shelf, None))
        kept = choice.take(VmCounter)[VmCounter]
    whole = [batch for piece in segments for batch in piece]
    assert lasting(kept) == lasting(whole)


def lasting(batches: Readings) -> list[tuple[float, float, int]]:
    return [each for each in stretches(batches, "by_tasks", 1000) if each[1] - each[0] >= 1.8]


def test_cores_are_counted_as_the_detector_counts_them():
    def reading(at: float, cores: int) -> Batch[Any]:
        rows = tuple(CoreTimes(cpu, 0, 0, 0, 0, 0, 0, 0, 0) for cpu in range(cores))
        return Batch(at, WALL_S + at, rows)

    with scratch() as place:
        shelf = written(place, [reading(100.0, 4), reading(101.0, 4), reading(102.0, 3)], 1)
        assert strain.cores_at_the_end(shelf) == 3
    with scratch() as place:
        assert strain.cores_at_the_end(written(place, reclaiming(3), 1)) is None
