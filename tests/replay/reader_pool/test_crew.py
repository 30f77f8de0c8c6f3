"""Several processes read what one would: the same."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sexton.replay import reader_pool as crews
from sexton.replay.reader_pool import Crew
from sexton.sources import allowance
from sexton.store.recording import Recording, Segment
from tests.replay.reader_pool.together import both_there, square


def test_two_work_at_the_same_time(recording: Recording, tmp_path: Path):
    with Crew(recording, 2) as crew:
        assert all(crew.each(partial(both_there, tmp_path), range(16), weights=[1] * 16))


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("items", [0, 1, 15, 16, 100, 7000])
def test_answers_come_in_the_order_of_the_items(recording: Recording, number: int, items: int):
    seen: list[tuple[int, int]] = []
    with Crew(recording, number) as crew:
        for _ in range(3):
            crew.tick = lambda *some: seen.append(some)
            found = list(crew.each(square, range(items)))
            assert [each for each, _ in found] == [each * each for each in range(items)]
            assert len({who for _, who in found}) <= number
    assert seen == sorted(seen[: len(seen) // 3]) * 3 or number > 1
    assert all(0 <= done < total == items for done, total in seen)


@pytest.mark.parametrize("items", [16, 100, 2500])
def test_the_heaviest_item_is_begun_first_and_answered_in_its_turn(
    recording: Recording, items: int
):
    weights = [each % 7 for each in range(items)]
    begun: list[int] = []
    with Crew(recording, 2) as crew:
        give = crew._give

        def noted(do: Any, pieces: Any) -> Any:
            begun.extend(weights[piece[0]] for piece in pieces)
            return give(do, pieces)

        crew._give = noted  # type: ignore[method-assign]
        found = [each for each, _ in crew.each(square, range(items), weights)]
    assert found == [each * each for each in range(items)]
    assert begun == sorted(begun, reverse=True)


def test_few_items_are_not_worth_a_fork(recording: Recording):
    with Crew(recording, 4) as crew:
        assert {who for _, who in crew.each(square, range(15))} == {os.getpid()}
        assert crew._workers == []


def test_few_rows_are_not_worth_a_fork(recording: Recording, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(crews, "_LEAST_ROWS", 1000)
    with Crew(recording, 2) as crew:
        list(crew.each(square, range(99), [10] * 99))
        assert crew._workers == []
        list(crew.each(square, range(2), [10, 990]))
        assert len(crew._workers) == 1


def test_where_other_threads_run_nobody_is_forked(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.undo()
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    with Crew(recording, 4) as crew:
        other.start()  # after the crew was made, and before it is asked
        try:
            assert {who for _, who in crew.each(square, range(100))} == {os.getpid()}
        finally:
            over.set()
            other.join()


@pytest.mark.parametrize(("cores", "workers"), [(1, 0), (2, 1), (96, 3)])
def test_as_many_are_forked_as_there_are_cores_for_us(
    recording: Recording, monkeypatch: pytest.MonkeyPatch, cores: int, workers: int
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(96)})
    monkeypatch.setattr(allowance, "cores_for_us", lambda _: cores)
    with Crew(recording) as crew:
        list(crew.each(square, range(100)))
        assert len(crew._workers) == workers


def test_with_one_core_nobody_is_forked(recording: Recording, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5})
    with Crew(recording) as crew:
        assert {who for _, who in crew.each(square, range(100))} == {os.getpid()}


def test_where_no_process_is_to_be_had_we_do_it_alone(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
):
    def refused() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", refused)
    with Crew(recording, 3) as crew:
        assert {who for _, who in crew.each(square, range(100))} == {os.getpid()}
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_segments_go_by_their_place_and_are_those_of_the_recording(node: Path):
    recording = Recording(node)
    names = [segment.name for segment in recording.segments]
    with Crew(recording, 3) as crew:
        assert list(crew.each(name_of, recording.segments)) == names


def name_of(segment: Segment) -> str:
    return segment.name
