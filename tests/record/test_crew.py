"""Several processes read what one would: the same, whatever becomes of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.synthetic import write
from sexton.model.cpu import CoreTimes
from sexton.model.stack import StackCount
from sexton.model.unit import Unit
from sexton.model.window import Window
from sexton.record import replay
from sexton.record.crew import Crew
from sexton.record.shelf import Book, Shelf
from sexton.record.signals import aligned_in, events_in
from sexton.record.span import everything
from sexton.store.recording import Recording
from tests.support.synthetic import small

#: Longer than anything here takes on the slowest machine: to fail, not to measure.
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty segments in which five walks starve the network, with stacks."""
    plan = small(
        "crash_loop", "zombie_walk", "nic_reset",
        hours=0.65, walks=5, stack_hertz=19, stack_nodes=500, seed=5,
    )  # fmt: skip
    return write(tmp_path_factory.mktemp("crew") / "node", plan).directory


@pytest.fixture
def recording(node: Path) -> Recording:
    return Recording(node)


def wait_for(happened: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not happened():
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


def told(window: Window) -> dict[str, Any]:
    """Everything there is in it."""
    return vars(window) | {"_batches": {k.__name__: v for k, v in window._batches.items()}}


def read_back(directory: Path, number: int, most_rows: int = 0) -> tuple[Any, ...]:
    """The window, what is said of it, and what was wrong, as so many processes find it."""
    found = Recording(directory)
    with Crew(found, number) as crew:
        window, notes, condensed = replay.window(found, everything(found), most_rows, crew=crew)
    return told(window), notes, condensed, sorted(found.problems)


def both_there(place: Path, item: int) -> bool:
    """True where somebody else does the other half at the same time."""
    (place / str(item % 2)).touch()
    return wait_for((place / str(1 - item % 2)).exists)


def test_two_work_at_the_same_time(recording: Recording, tmp_path: Path):
    with Crew(recording, 2) as crew:
        assert all(crew.each(partial(both_there, tmp_path), range(16), weights=[1] * 16))


def square(number: int) -> tuple[int, int]:
    return number * number, os.getpid()


@pytest.mark.parametrize("number", [1, 2, 4])
@pytest.mark.parametrize("items", [0, 1, 15, 16, 100, 7000])
def test_answers_come_in_the_order_of_the_items(recording: Recording, number: int, items: int):
    seen: list[tuple[int, int]] = []
    with Crew(recording, number) as crew:
        for _ in range(3):
            found = list(crew.each(square, range(items), lambda *some: seen.append(some)))
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

        def noted(do: Any, pieces: Any) -> None:
            begun.extend(weights[piece[0]] for piece in pieces)
            give(do, pieces)

        crew._give = noted  # type: ignore[method-assign]
        found = [each for each, _ in crew.each(square, range(items), None, weights)]
    assert found == [each * each for each in range(items)]
    assert begun == sorted(begun, reverse=True)


def test_few_items_are_not_worth_a_fork(recording: Recording):
    with Crew(recording, 4) as crew:
        assert {who for _, who in crew.each(square, range(15))} == {os.getpid()}
        assert crew._workers == []


def test_where_other_threads_run_nobody_is_forked(recording: Recording):
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    try:
        with Crew(recording, 4) as crew:
            assert {who for _, who in crew.each(square, range(100))} == {os.getpid()}
    finally:
        over.set()
        other.join()


def test_segments_go_by_their_place_and_are_those_of_the_recording(recording: Recording):
    shelf = Shelf(recording, everything(recording))
    names = [book.segment.name for book in shelf.books]
    with Crew(recording, 3) as crew:
        assert list(crew.each(name_of, shelf.books)) == names


def name_of(book: Book) -> str:
    return book.segment.name


@pytest.mark.parametrize("most_rows", [0, 10**9], ids=["condensed", "whole"])
def test_two_find_what_one_finds(node: Path, most_rows: int):
    alone = read_back(node, 1, most_rows)
    assert len(Recording(node).segments) >= 16
    assert {"CoreTimes", "Unit", "StackCount", "KernelEvent"} <= alone[0]["_batches"].keys()
    for number in (2, 4):
        assert read_back(node, number, most_rows) == alone


def test_two_compare_what_one_compares(node: Path):
    found = []
    for number in (1, 2, 4):
        recording = Recording(node)
        span = everything(recording)
        events = events_in(recording, span, "nic_reset")
        with Crew(recording, number) as crew:
            found.append(aligned_in(recording, span, events, None, crew))
    assert found[0].tested > 100
    assert {"function", "task", "core"} <= {each.kind for each in found[0].ranked}
    assert found[1] == found[2] == found[0] == aligned_in(recording, span, events)


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
    assert read_back(copy, 2) == alone
    assert read_back(copy, 4) == alone


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


def killed_elsewhere(us: int, flag: Path, item: int) -> int:
    """Whoever is not us dies of it, and we go on when that has happened."""
    if os.getpid() != us:
        flag.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    assert wait_for(flag.exists)
    return item


def fails_elsewhere(us: int, flag: Path, item: int) -> int:
    if os.getpid() != us:
        flag.write_text(str(os.getpid()))
        raise RuntimeError("only here")
    assert wait_for(flag.exists)
    return item


@pytest.mark.parametrize("do", [killed_elsewhere, fails_elsewhere])
def test_what_a_worker_that_dies_had_taken_is_done_here(
    recording: Recording, tmp_path: Path, do: Any, capfd: pytest.CaptureFixture[str]
):
    flag = tmp_path / "gone"
    with Crew(recording, 2) as crew:
        assert list(crew.each(partial(do, os.getpid(), flag), range(40))) == list(range(40))
        assert crew._workers == []
        again = list(crew.each(square, range(40)))
    assert again == [(each * each, os.getpid()) for each in range(40)]
    assert not Path("/proc", flag.read_text()).exists()
    assert capfd.readouterr() == ("", "")


def fails_everywhere(item: int) -> int:
    if item == 33:
        raise ValueError("nobody can")
    return item


def test_what_is_wrong_with_an_item_is_raised_here(recording: Recording):
    with Crew(recording, 2) as crew, pytest.raises(ValueError, match="nobody can"):
        list(crew.each(fails_everywhere, range(40)))


def test_nobody_and_nothing_is_left_behind(recording: Recording, tmp_path: Path):
    before = sorted(os.listdir("/proc/self/fd"))
    with Crew(recording, 3) as crew:
        assert all(crew.each(partial(both_there, tmp_path), range(16), weights=[1] * 16))
        workers = [worker.pid for worker in crew._workers]
        assert len(workers) == 2
    assert not any(Path("/proc", str(each)).exists() for each in workers)
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert list(crew.each(square, [3, 4])) == [(9, os.getpid()), (16, os.getpid())]


ORPHANED = """
import os, signal, sys
from pathlib import Path
from sexton.record.crew import Crew
from sexton.store.recording import Recording
with Crew(Recording(Path(sys.argv[1])), 3) as crew:
    list(crew.each(abs, range(100)))
    print(*(worker.pid for worker in crew._workers), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_whoever_forked_them(node: Path):
    ran = subprocess.run(
        [sys.executable, "-c", ORPHANED, node], stdout=subprocess.PIPE, check=False, timeout=120
    )  # returns when the last of them has closed its standard output
    assert ran.returncode == -signal.SIGKILL
    pids = ran.stdout.split()
    assert len(pids) == 2
    assert wait_for(lambda: not any(_runs(int(each)) for each in pids))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False
