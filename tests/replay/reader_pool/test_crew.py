"""Several processes read what one would: the same."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sexton.replay.unit_ends import unit_ends

from lab.incident import INCIDENTS
from sexton.model.cpu import CoreTimes
from sexton.model.stack import StackCount
from sexton.model.unit import Unit
from sexton.replay import reader_pool as crews
from sexton.replay import window as replay
from sexton.replay.reader_pool import Crew
from sexton.replay.signals import aligned_in, events_in
from sexton.replay.span import everything
from sexton.replay.span_reader import Book, Shelf
from sexton.sources import allowance
from sexton.store.recording import Recording
from tests.replay.reader_pool.together import both_there, read_back, square, told


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
    shelf = Shelf(recording, everything(recording))
    names = [book.segment.name for book in shelf.books]
    with Crew(recording, 3) as crew:
        assert list(crew.each(name_of, shelf.books)) == names


def name_of(book: Book) -> str:
    return book.segment.name


def test_three_find_what_one_finds(node: Path):
    alone = read_back(node, 1)
    assert len(Recording(node).segments) >= 16
    assert {"CoreTimes", "Unit", "StackCount", "KernelEvent"} <= alone[0]["_batches"].keys()
    assert read_back(node, 3) == alone


def test_three_compare_what_one_compares(node: Path):
    found = []
    for number in (1, 3):
        recording = Recording(node)
        span = everything(recording)
        events = events_in(recording, span, "nic_reset")
        with Crew(recording, number) as crew:
            found.append(aligned_in(recording, span, events, None, crew))
    assert found[0].tested > 100
    assert {"function", "task", "core"} <= {each.kind for each in found[0].ranked}
    assert found[1] == found[0] == aligned_in(recording, span, events)


def test_two_find_every_end_that_one_finds(node: Path):
    recording = Recording(node)
    alone = unit_ends(recording, everything(recording), "ecs.service")
    assert len(alone) > 50
    with Crew(recording, 2) as crew:
        assert unit_ends(recording, everything(recording), "ecs.service", crew) == alone


REAL = ("whole_chain-6.18-v1", "whole_chain-6.1-v2", "packet_flood-6.18-v1", "leaked_scopes-6.1-v2")


@pytest.mark.parametrize("name", REAL)
def test_two_find_in_a_real_recording_what_one_finds(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(crews, "_LEAST", 1)
    monkeypatch.setattr(crews, "_PIECE", 1)
    place = INCIDENTS / name / "recording"
    found: list[Any] = []
    for number in (1, 2):
        recording = Recording(place)
        span = everything(recording)
        with Crew(recording, number) as crew:
            whole = replay.window(recording, span, crew=crew)
            condensed = replay.window(recording, span, 0, crew=crew)
            middle = (span.start[0] + span.end[0]) / 2
            aligned = aligned_in(recording, span, [middle], None, crew)
            assert len(crew._workers) == number - 1
        assert condensed.condensed
        assert aligned.tested > 10
        found.append((told(whole.window), told(condensed.window), condensed.notes, aligned))
    assert found[0] == found[1]


def flip(segment: Path) -> None:
    path = segment / "core_times.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def lose_a_file(segment: Path) -> None:
    (segment / "unit.parquet").unlink()


def lose_the_list(segment: Path) -> None:
    (segment / "reading.parquet").write_bytes(b"")


@pytest.mark.parametrize("damage", [flip, lose_a_file, lose_the_list])
def test_damage_is_told_once_and_the_same_whoever_met_it(
    node: Path, tmp_path: Path, damage: Callable[[Path], None]
):
    copy = Path(shutil.copytree(node, tmp_path / "node"))
    for segment in sorted((copy / "segments").iterdir())[2::3]:
        damage(segment)
    alone = read_back(copy, 1)
    assert len(alone[-1]) >= 5
    assert any("damaged or foreign" in note for note in alone[1])
    assert read_back(copy, 3) == alone


def test_a_segment_that_retires_meanwhile_is_missed_by_all_alike(node: Path, tmp_path: Path):
    found = []
    for number in (1, 2):
        copy = Path(shutil.copytree(node, tmp_path / str(number)))
        recording = Recording(copy)
        with Crew(recording, number) as crew:
            assert len(list(crew.each(name_of_segment, recording.segments))) >= 16  # forked by now
            shutil.rmtree(recording.segments[0].path)
            shutil.rmtree(recording.segments[9].path)
            window, *rest = replay.window(recording, everything(recording), 0, crew=crew)
        found.append((told(window), sorted(recording.problems)))
        assert len(recording.problems) > 2
        assert len(window.batches(CoreTimes)) > 2
        assert window.batches(Unit)
        assert window.batches(StackCount)
        assert rest[1]
    assert found[0] == found[1]


def name_of_segment(segment: Any) -> str:
    return str(segment.name)
