"""Recorders that are killed, and what the next one finds."""

from __future__ import annotations

import errno
import faulthandler
import multiprocessing
import os
import random
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pytest

from sexton.errors import StoreError
from sexton.store import sealed
from sexton.store.journal import OpenSegment
from sexton.store.layout import ASIDE, FORMAT, Lock, prepare, segment_name, segments_in
from sexton.store.recording import Recording
from sexton.store.schema import tables
from sexton.store.sealed import seal
from sexton.store.sealer import seal_finished, take_over
from tests.support.recordings import (
    HEADER,
    STATES,
    WALL_S,
    cores,
    marks,
    shown,
    simple,
    write_open,
    write_sealed,
)

MARK, CORE = tables()["mark"], tables()["core_times"]
KILLS = 30
_FLUSHES_A_SEGMENT = 6


def record_until_killed(directory: Path, first: int, connection: Connection) -> None:
    """A recorder in a hurry: says each flush once it is on disk, and each seal as it begins."""
    prepare(directory)
    Lock(directory)
    take_over(directory)
    taken = [*segments_in(directory / "open"), *segments_in(directory / "segments")]
    sequence = max((name.sequence for name in taken), default=0)
    number = first
    while True:
        sequence += 1
        place = directory / "open" / segment_name(sequence, WALL_S).text
        segment = OpenSegment(place, HEADER)
        for _ in range(_FLUSHES_A_SEGMENT):
            number += 1
            moment = float(number)
            segment.flush({MARK: [marks(2, moment)], CORE: [cores(moment)]}, STATES)
            connection.send(number)
        segment.close()
        connection.send("sealing")
        seal(place, directory / "segments")
        connection.send("sealed")


def watch_and_kill(directory: Path, first: int, chance: random.Random) -> list[int]:
    """Let one recorder run for a random while; the flushes that it said were on disk."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sexton.store.sealer", __name__])
    heard, connection = context.Pipe(duplex=False)
    child = context.Process(
        target=record_until_killed, args=(directory, first, connection), daemon=True
    )
    child.start()
    connection.close()
    said: list[int | str] = []
    wait_for = chance.choice(["sealing", "sealing", "sealed", first + 1, first + 3, first + 9])
    try:
        while wait_for not in said:
            said.append(heard.recv())
        time.sleep(chance.random() * 0.02)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    try:
        while True:
            said.append(heard.recv())
    except (EOFError, OSError):
        heard.close()
    return [moment for moment in said if isinstance(moment, int)]


def test_what_was_flushed_before_a_kill_is_there_after_it(tmp_path: Path):
    chance = random.Random(3)
    flushed: list[int] = []
    sealed_before: set[str] = set()
    for kill in range(KILLS):
        flushed += watch_and_kill(tmp_path, kill * 100_000, chance)
        recording = Recording(tmp_path)
        found = {
            kind: {
                batch.mono_s: batch
                for segment in recording.segments
                for batch in segment.batches(kind)
            }
            for kind in (MARK, CORE)
        }
        for number in flushed:
            moment = float(number)
            assert shown([found[MARK][moment]]) == shown([marks(2, moment)])
            assert shown([found[CORE][moment]]) == shown([cores(moment)])
        # At most the last flush was on its way when the kill came.
        assert len(found[CORE].keys() - set(map(float, flushed))) <= kill + 1
        assert [
            problem for problem in recording.problems if "its last line is torn" not in problem
        ] == []
        sealed = {segment.name for segment in recording.segments if segment.sealed}
        assert sealed_before <= sealed
        sealed_before = sealed

    lock = Lock(tmp_path)
    take_over(tmp_path)
    lock.release()
    assert list((tmp_path / "open").iterdir()) == []
    assert [path for path in tmp_path.rglob("*") if path.name.startswith(ASIDE)] == []
    recording = Recording(tmp_path)
    assert recording.problems == []
    assert all(segment.sealed for segment in recording.segments)
    found_at_last = [
        batch.mono_s for segment in recording.segments for batch in segment.batches(CORE)
    ]
    assert set(map(float, flushed)) <= set(found_at_last)
    assert found_at_last == sorted(set(found_at_last))
    assert sealed_before <= {segment.name for segment in recording.segments}
    assert len(flushed) > 3 * KILLS


@pytest.mark.whole
def test_a_reader_beside_a_recorder_meets_nothing_half_and_no_gap(tmp_path: Path):
    context = multiprocessing.get_context("forkserver")
    heard, connection = context.Pipe(duplex=False)
    child = context.Process(target=record_until_killed, args=(tmp_path, 0, connection), daemon=True)
    child.start()
    try:
        while heard.recv() != "sealed":
            pass
        for _ in range(60):
            recording = Recording(tmp_path)
            assert recording.problems == []
            names = [segment.sequence for segment in recording.segments]
            assert names == list(range(1, len(names) + 1))
            moments = [
                batch.mono_s for segment in recording.segments for batch in segment.batches(CORE)
            ]
            assert moments == [float(number) for number in range(1, len(moments) + 1)]
            assert recording.problems == []
            while heard.poll():
                heard.recv()
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.join()


def test_a_flush_that_is_being_written_is_not_reported_as_lost(tmp_path: Path):
    opened = write_open(tmp_path, [simple(1.0), simple(3.0)])
    journal = opened / "journal"
    journal.write_bytes(journal.read_bytes()[:-9])
    lock = Lock(tmp_path)
    recording = Recording(tmp_path)
    (segment,) = recording.segments
    assert [batch.mono_s for batch in segment.batches(CORE)] == [1.0, 2.0]
    assert recording.problems == []
    lock.release()
    (problem,) = Recording(tmp_path).problems
    assert problem.endswith("its last line is torn, one flush is lost")


def hold(directory: Path, connection: Connection) -> None:
    Lock(directory)
    connection.send(os.getpid())
    time.sleep(600)


def test_a_second_recorder_is_refused_by_the_firsts_pid_until_that_is_killed(tmp_path: Path):
    context = multiprocessing.get_context("forkserver")
    heard, connection = context.Pipe(duplex=False)
    child = context.Process(target=hold, args=(tmp_path, connection), daemon=True)
    child.start()
    try:
        pid = heard.recv()
        with pytest.raises(StoreError) as refusal:
            Lock(tmp_path)
        assert str(refusal.value) == f"{tmp_path}: process {pid} is recording here already"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.join()
    lock = Lock(tmp_path)
    assert (tmp_path / "LOCK").read_text() == f"{os.getpid()}\n"
    lock.release()


def test_what_is_half_written_goes_and_what_is_open_is_sealed(tmp_path: Path):
    write_open(tmp_path, [simple(1.0)], sequence=1)
    write_open(tmp_path, [simple(9.0)], sequence=2)
    for place in ("segments", "open"):
        (tmp_path / place / f"{ASIDE}00000007-20240101T000000Z").mkdir()
        (tmp_path / place / f"{ASIDE}00000007-20240101T000000Z" / "x.parquet").write_text("half")
    (tmp_path / "pins" / f"{ASIDE}a.json").write_text("{")
    (tmp_path / f"{ASIDE}status.json").write_text("{")
    (tmp_path / "segments" / "notes.txt").write_text("mine")
    assert take_over(tmp_path) == [
        "removed 4 half-written leftovers",
        "sealed 2 segments that an earlier recorder left open",
    ]
    recording = Recording(tmp_path)
    assert [segment.sealed for segment in recording.segments] == [True, True]
    assert recording.problems == ["segments/notes.txt: not a segment, skipped"]
    assert [path for path in tmp_path.rglob("*") if path.name.startswith(ASIDE)] == []
    assert take_over(tmp_path) == []


def test_nothing_is_removed_through_a_link(tmp_path: Path):
    path = tmp_path / "elsewhere"
    path.mkdir()
    (path / "precious").write_text("kept")
    recording = tmp_path / "recording"
    prepare(recording)
    (recording / "segments" / f"{ASIDE}link").symlink_to(path)
    (recording / "open" / "00000001-20240101T000000Z").symlink_to(path)
    take_over(recording)
    assert (path / "precious").read_text() == "kept"
    assert not (recording / "segments" / f"{ASIDE}link").is_symlink()
    assert (recording / "open" / "00000001-20240101T000000Z").is_symlink()


def test_one_that_was_sealed_and_not_yet_removed_is_only_tidied_up(tmp_path: Path):
    opened = write_open(tmp_path, [simple(1.0)])
    kept = tmp_path / "kept"
    opened.rename(kept)
    kept_again = write_sealed(tmp_path, [simple(1.0)])
    before = (kept_again / "manifest.json").stat().st_ino
    kept.rename(opened)
    take_over(tmp_path)
    assert not opened.exists()
    assert (kept_again / "manifest.json").stat().st_ino == before


def test_one_whose_sealed_twin_is_damaged_is_sealed_anew(tmp_path: Path):
    opened = write_open(tmp_path, [simple(1.0)])
    whole = tmp_path / "segments" / opened.name
    whole.mkdir()
    (whole / "manifest.json").write_text("rubbish")
    take_over(tmp_path)
    (segment,) = Recording(tmp_path).segments
    assert shown(segment.batches(CORE)) == shown(simple(1.0)[CORE])


def test_a_segment_that_a_newer_version_left_open_is_kept_as_it_is(tmp_path: Path):
    newer = {**HEADER, "schema": f"sexton.recording/{FORMAT + 1}"}
    opened = write_open(tmp_path, [simple(1.0)], header=newer)
    before = {path.name: path.read_bytes() for path in opened.iterdir()}
    notes = take_over(tmp_path)
    assert any("newer Sexton" in note for note in notes)
    kept = tmp_path / "segments" / opened.name
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == before
    recording = Recording(tmp_path)
    assert recording.segments == []
    newest = f"newer Sexton (sexton.recording/{FORMAT + 1})"
    assert [problem for problem in recording.problems if newest in problem]


def test_a_recorder_that_was_killed_as_it_began_leaves_nothing(tmp_path: Path):
    prepare(tmp_path)
    (tmp_path / "open" / "00000001-20240101T000000Z").mkdir()
    (tmp_path / "open" / "00000002-20240101T000000Z").mkdir()
    (tmp_path / "open" / "00000002-20240101T000000Z" / "journal").write_bytes(b"0000")
    write_open(tmp_path, [], sequence=3)
    assert len(take_over(tmp_path)) == 3
    assert list((tmp_path / "open").iterdir()) == []
    assert list((tmp_path / "segments").iterdir()) == []


def test_an_open_segment_of_which_nothing_can_be_read_is_kept_and_named(tmp_path: Path):
    opened = write_open(tmp_path, [simple(1.0)])
    for path in opened.glob("*.rows"):
        path.write_bytes(b"damaged")
    notes = take_over(tmp_path)
    assert notes[-1] == f"{opened.name}: kept as it is, under segments/"
    recording = Recording(tmp_path)
    assert recording.segments == []
    assert [problem for problem in recording.problems if "holds no reading" in problem]


def test_a_segment_that_crashes_its_reader_is_set_aside_and_the_others_are_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever Arrow may still stumble over: at every start again, it would keep a recorder out."""
    opened = [write_open(tmp_path, [simple(float(n))], n).name for n in (1, 2, 3)]
    real = sealed.seal

    def seal(path: Path, segments: Path, signer: None) -> tuple[Path | None, list[str]]:
        if path.name == opened[1]:
            faulthandler.disable()  # it would tell of a crash that is meant
            os.kill(os.getpid(), signal.SIGSEGV)
        return real(path, segments)

    monkeypatch.setattr(sealed, "seal", seal)
    done = seal_finished(tmp_path, apart=True)
    assert (done.sealed, done.error) == (2, 0)
    assert done.notes == [
        f"{opened[1]}: cannot be read: it crashed (SIGSEGV): damaged or hostile input",
        f"{opened[1]}: kept as it is, under segments/",
    ]
    assert list((tmp_path / "open").iterdir()) == []
    assert [segment.name for segment in Recording(tmp_path).segments] == opened


def test_a_child_that_raises_ends_there_and_does_not_go_on_as_a_second_sealer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake: a mistake of our own in `seal`."""
    opened = write_open(tmp_path, [simple(1.0)])
    monkeypatch.setattr(sealed, "seal", lambda *_: {}["a mistake"])
    try:
        done = seal_finished(tmp_path, apart=True)
    finally:
        (tmp_path / f"back-{os.getpid()}").touch()
    assert [path.name for path in tmp_path.glob("back-*")] == [f"back-{os.getpid()}"]
    assert (done.sealed, done.error, done.why) == (0, 0, "")
    assert done.notes == [
        f"{opened.name}: cannot be read: its reader failed (exit status 1): damaged or hostile"
        " input, or a bug",
        f"{opened.name}: kept as it is, under segments/",
    ]
    assert list((tmp_path / "open").iterdir()) == [], "and it is not met at the next start"
    assert [segment.name for segment in Recording(tmp_path).segments] == [opened.name]


def test_a_segment_that_only_arrow_refuses_is_set_aside_and_a_full_disks_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error came back at each start, and the recorder ended with it."""
    opened = write_open(tmp_path, [simple(1.0)])
    found: list[Exception] = [
        OSError(errno.ENOSPC, "No space left on device"),
        pa.ArrowInvalid("x"),
    ]

    def seal(*_: Path) -> None:
        raise found[0]

    monkeypatch.setattr(sealed, "seal", seal)
    assert seal_finished(tmp_path, apart=True).error == errno.ENOSPC
    assert opened.is_dir()
    found.pop(0)
    assert seal_finished(tmp_path, apart=True).error == 0
    assert not opened.exists()


def test_a_table_that_is_too_large_to_be_sealed_here_is_kept_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = write_open(tmp_path, [simple(1.0)])
    with monkeypatch.context() as patched:
        patched.setattr("sexton.sandbox._UNCONFINED_READ", 100)
        assert seal_finished(tmp_path).sealed == 0
    (segment,) = Recording(tmp_path).segments
    assert segment.path == tmp_path / "segments" / opened.name
    assert len(segment.batches(tables()["core_times"])) == 2
