"""The last readings of an open segment, followed: the same as a window of the recording has."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sexton.errors import NotRead
from sexton.model.row import Row
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.recorder import Mark
from sexton.model.rows.unit import RestartMark
from sexton.model.window import Batch, Window
from sexton.replay.span import Span
from sexton.replay.tail import Kept, Tail
from sexton.replay.window import window
from sexton.store import schema
from sexton.store.journal import JOURNAL
from sexton.store.recording import Recording
from tests.support.recordings import WALL_S, cores, write_open, write_sealed

SPAN_S = 30.0
KEPT = Kept((VmCounter,), {CoreTimes: 10.0}, (RestartMark,))
FLUSHES = 12
Flush = dict[type[Row], list[Batch[Any]]]


def flush_at(start_s: float) -> Flush:
    """Five seconds; the counters are read twice, once without rows."""
    seconds = [start_s + second for second in range(5)]
    names = [("pgfault", "pgmajfault"), ()]
    if start_s % 10:
        names.reverse()
    counters = [
        Batch(at, WALL_S + at, tuple(VmCounter(name, int(at)) for name in some))
        for at, some in zip(seconds, names, strict=False)
    ]
    nothing = [Batch(start_s + 1, WALL_S + start_s + 1, ())]
    return {CoreTimes: [*map(cores, seconds)], VmCounter: counters, RestartMark: nothing}


class Growing:
    """A recording that grows by one flush at a time; there are two before the first."""

    def __init__(self, directory: Path, flushes: Sequence[Flush]) -> None:
        self.directory = directory
        self.place = write_open(directory, flushes)
        self._lines = (self.place / JOURNAL).read_bytes().splitlines(keepends=True)
        self._there = 3
        self.write(b"")

    def write(self, more: bytes) -> None:
        (self.place / JOURNAL).write_bytes(b"".join(self._lines[: self._there]) + more)

    def grow(self, flushes: int = 1) -> None:
        self._there += flushes
        self.write(b"")

    @property
    def next_line(self) -> bytes:
        return self._lines[self._there]

    def span(self) -> Span:
        last = self.recording().segments[-1]
        mono_s, wall_s = last.end
        return Span(last.boot_id, (mono_s - SPAN_S, wall_s - SPAN_S), last.end)

    def recording(self) -> Recording:
        return Recording(self.directory)

    def window(self) -> Window:
        return window(self.recording(), self.span()).window

    def tail(self) -> Tail:
        return Tail(self.recording(), self.window(), KEPT, SPAN_S)


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path / "recording", [flush_at(100.0 + 5 * at) for at in range(FLUSHES)])


def assert_same(tail: Tail, growing: Growing) -> None:
    found, whole = tail.window, growing.window()
    assert tail.span.end == growing.span().end
    assert found.latest(VmCounter) == whole.latest(VmCounter)
    mine = found.batches(CoreTimes) or ()
    every = whole.batches(CoreTimes) or ()
    assert mine == every[-len(mine) :]
    assert mine[-1].mono_s - mine[0].mono_s >= KEPT.some[CoreTimes] or mine == every
    assert found.read(RestartMark) == whole.read(RestartMark)
    assert found.states == whole.states
    assert (found.end, found.end_mono) == (whole.end, whole.end_mono)


@pytest.mark.parametrize("step", [1, 3])
def test_what_is_appended_is_all_that_is_decoded(
    growing: Growing, step: int, monkeypatch: pytest.MonkeyPatch
):
    """Of counters only the last reading, and nothing if it had no rows."""
    growing.grow(step)
    tail = growing.tail()
    real, decoded = schema.read_stream, []
    for _ in range(2 * step, FLUSHES - 1, step):
        growing.grow(step)
        with monkeypatch.context() as patched:
            patched.setattr(
                schema, "read_stream", lambda good, _: decoded.append(len(good)) or real(good, _)
            )
            assert tail.follow()
        last_is_empty = growing.window().latest(VmCounter) == ()
        assert sum(decoded) == 2 * step + (not last_is_empty)
        decoded.clear()
        assert_same(tail, growing)


def test_a_flush_that_is_being_written_is_read_when_it_is_whole(growing: Growing):
    tail = growing.tail()
    for length in (0, 1, len(growing.next_line) - 2):
        growing.write(growing.next_line[:length])
        assert tail.follow()
        assert_same(tail, growing)
    growing.grow()
    assert tail.follow()
    assert_same(tail, growing)


def test_of_a_table_that_is_not_followed_nothing_is_known(growing: Growing):
    seen = growing.tail().window
    for query in (seen.read, seen.latest, seen.batches, lambda kind: [*seen.columns(kind, ())]):
        with pytest.raises(NotRead):
            query(Mark)


@pytest.mark.parametrize("kind", [CoreTimes, VmCounter])
def test_an_old_reading_stays_unless_it_is_about_a_moment(tmp_path: Path, kind: type[Row]):
    flushes = [flush_at(100.0 + 5 * at) for at in range(FLUSHES)]
    for flush in flushes[2:]:
        del flush[kind]
    growing = Growing(tmp_path / "recording", flushes)
    tail = Tail(growing.recording(), growing.window(), Kept((kind,), {}, ()), SPAN_S)
    known = tail.window.latest(kind)
    assert known is not None
    for _ in range(2, FLUSHES):
        growing.grow()
        assert tail.follow()
        assert tail.window.latest(kind) == growing.window().latest(kind)
    assert tail.window.latest(kind) == (None if kind is CoreTimes else known)


def _damage(growing: Growing) -> None:
    with (growing.place / "core_times.rows").open("r+b") as stream:
        stream.seek(-3, 2)
        stream.write(b"xyz")
    growing.grow(FLUSHES - 2)


def _damage_a_line(growing: Growing) -> None:
    growing.write(growing.next_line.replace(b"ends", b"sdne", 1))


def _begin_again(growing: Growing) -> None:
    write_open(growing.directory, [flush_at(100.0 + 5 * FLUSHES)], sequence=2)


def _seal(growing: Growing) -> None:
    growing.grow()
    shutil.move(growing.place, growing.directory / "aside")


def _shorten(growing: Growing) -> None:
    growing.grow(-1)


def _pause(growing: Growing) -> None:
    growing.grow(8)


@pytest.mark.parametrize("change", [_damage, _damage_a_line, _begin_again, _seal, _shorten, _pause])
def test_anything_else_ends_it_for_good(growing: Growing, change):
    tail = growing.tail()
    change(growing)
    assert not tail.follow()
    assert not tail.follow()


def test_a_gap_ends_it(tmp_path: Path):
    flushes = [flush_at(100.0), flush_at(105.0), flush_at(130.0)]
    growing = Growing(tmp_path / "recording", flushes)
    tail = growing.tail()
    growing.grow()
    assert not tail.follow()
    tail = growing.tail()
    assert [batch.follows for batch in tail.window.batches(CoreTimes) or ()].count(False) == 1


def test_a_new_event_ends_it(tmp_path: Path):
    """Whether it is new can only be told by comparing it with all before."""
    late = flush_at(110.0)
    mark = RestartMark("a.service", 3, WALL_S + 111)
    late[RestartMark] = [Batch(111.0, WALL_S + 111, (mark,))]
    growing = Growing(tmp_path / "recording", [flush_at(100.0), flush_at(105.0), late])
    tail = growing.tail()
    growing.grow()
    assert not tail.follow()
    assert growing.tail().window.all(RestartMark) == (mark,)


def test_a_sealed_recording_is_not_followed(tmp_path: Path):
    write_sealed(tmp_path, [flush_at(100.0)])
    recording = Recording(tmp_path)
    last = recording.segments[-1]
    seen = window(recording, Span(last.boot_id, last.start, last.end)).window
    tail = Tail(recording, seen, KEPT, SPAN_S)
    assert len(tail.window.batches(CoreTimes) or ()) == 5
    assert not tail.follow()
