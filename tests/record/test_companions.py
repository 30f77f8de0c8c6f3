"""What lives beside the recorder: the ring that an alarm dumps, and perf's files."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from sexton.errors import SourceAbsent, StoreError
from sexton.host.host import open_host
from sexton.model.row import Row
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.recorder import RecorderNote
from sexton.model.rows.trace import RingState
from sexton.record import companions
from sexton.record.companions import Companion, Place, Ring, Stacks, chosen
from sexton.sources.tracefs import ring
from sexton.store.layout import is_locked
from sexton.store.pins import Pin, leave_mark, remark_now
from tests.record.running import (
    every,
    moments,
    options,
    recording,
    source,
    wait_for_reads,
    wait_until,
)


def calm() -> object:
    return source("test.calm", VmCounter, lambda: [VmCounter("ticks", 1)])


@pytest.mark.root
def test_an_alarm_dumps_the_last_seconds_event_by_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring, "MOST_PERCENT", 100.0)  # a busy machine's events must not pause it
    place = tmp_path / "r"
    with recording(options(place), [calm()], [Ring]) as recorder:
        wait_for_reads(recorder, "test.calm", 20)  # ten a second: the ring holds two seconds
        leave_mark(place, remark_now("job 17 died", recorder.boot_id))
        wait_until(lambda: any("ring" in note.detail for note in recorder._recent), most_s=60)
        (armed,) = (companion.within for companion in recorder._companions)
        wait_until(lambda: armed._dumping is None)  # it is told at the beat that follows
        status = json.loads((place / "status.json").read_text())
    (dumped,) = place.glob("rings/*.parquet")
    assert dumped.stem == next(place.glob("pins/*.json")).stem
    found = pq.read_table(dumped)
    assert "sched_switch" in set(found.column("event").to_pylist())
    span_s = (found.column("mono_ns")[-1].as_py() - found.column("mono_ns")[0].as_py()) / 1e9
    assert 1 < span_s < 11
    assert status["companions"]["tracefs.ring"]["mode"] == "on"
    assert any("event ring captured" in note.detail for note in every(place, RecorderNote))
    assert every(place, RingState)


def pin(name: str) -> Pin:
    return Pin(name, "mark", "", "", "boot", 0.0, 1e9, 0.0)


def beaten(made: Ring, until: Callable[[], object]) -> list[RecorderNote]:
    """The notes of its beats until something is so."""
    notes: list[RecorderNote] = []

    def beat() -> object:
        rows = made.beat(time.monotonic(), False)
        notes.extend(row for row in rows if isinstance(row, RecorderNote))
        return until()

    wait_until(beat)
    return notes


@pytest.fixture
def armed(tmp_path: Path) -> Iterator[Ring]:
    (tmp_path / "rings").mkdir()
    made = Ring(Place(open_host("/"), tmp_path, "node", "boot", 1 << 30))
    yield made
    made.close()


@pytest.mark.root
def test_every_alarm_has_a_ring_also_those_beside_another(
    armed: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring, "MOST_PERCENT", 100.0)
    monkeypatch.setattr(companions, "_DUMP_AGAIN_S", 2.0)
    rings = tmp_path / "rings"
    armed.alarmed(pin("first"))
    for name in ("second", "third"):  # while the first is written
        armed.alarmed(pin(name))
    notes = beaten(armed, lambda: (rings / "third.parquet").exists() and armed._dumping is None)
    assert sorted(path.stem for path in rings.iterdir()) == ["first", "second", "third"]
    assert (rings / "second.parquet").samefile(rings / "third.parquet")
    assert not (rings / "first.parquet").samefile(rings / "second.parquet")
    assert [note.kind for note in notes] == ["detail", "detail"]
    assert "second.parquet, third.parquet" in notes[1].detail


@pytest.mark.root
def test_an_alarm_that_goes_on_keeps_the_ring_of_its_beginning(
    armed: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(companions, "_DUMP_AGAIN_S", 0.0)
    kept = tmp_path / "rings" / "first.parquet"
    armed.alarmed(pin("first"))
    beaten(armed, lambda: kept.exists() and armed._dumping is None)
    written = kept.stat().st_ino
    armed.alarmed(pin("first"))
    assert armed._dumping is None
    assert not armed._waiting
    assert kept.stat().st_ino == written


@pytest.mark.root
def test_a_ring_that_costs_too_much_says_so_once_and_when_it_has_recovered(
    armed: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring, "MOST_PERCENT", -1.0)  # so that it is reduced, then paused
    armed._ring._grace_s = 0.0
    notes = beaten(armed, lambda: armed.status()["mode"] == "paused")
    assert [note.kind for note in notes] == ["shed"]
    assert "event ring reduced: " in notes[0].detail
    armed.alarmed(pin("missed"))
    (missed,) = beaten(armed, lambda: not armed._waiting)
    assert (missed.kind, missed.detail[:31]) == ("lost", "event ring not captured (paused")
    monkeypatch.setattr(ring, "MOST_PERCENT", 100.0)
    monkeypatch.setattr(companions, "_SETTLED_S", 1.0)
    armed.wake()
    (back,) = beaten(armed, lambda: not armed._reduced)
    assert (back.kind, back.detail) == ("restored", "event ring complete again")


@pytest.mark.root
def test_stacks_of_the_pinned_minutes_are_spared_by_their_bound(tmp_path: Path) -> None:
    place = tmp_path / "r"
    with recording(options(place), [calm()], [Stacks]) as recorder:
        (stacks,) = (companion.within for companion in recorder._companions)
        wait_until(lambda: (place / "stacks" / "perf.data").exists())
        wait_until(lambda: stacks.cost()[0] > 0)
        assert stacks.status()["alive"]
        stacks.rest()
        assert not stacks.status()["alive"]
        now = time.monotonic()
        stacks.alarmed(Pin("then", "mark", "", "", "boot", now - 9000, now - 8000, 0.0))
        assert stacks._spared() == set()
        stacks.alarmed(Pin("now", "mark", "", "", "boot", now - 300, now + 120, 0.0))
        assert stacks._spared() == {path.name for path in place.glob("stacks/perf.data.*")} != set()
        stacks.wake()
        wait_until(lambda: stacks.status()["alive"])
    assert list(place.glob("stacks/perf.data.*"))


def test_one_that_cannot_be_had_is_told_and_missed(tmp_path: Path) -> None:
    def refuse(_: Place) -> Companion:
        raise SourceAbsent("perf", "not installed", "apt install linux-perf")

    place = tmp_path / "r"
    with recording(options(place), [calm()], [refuse]) as recorder:
        wait_for_reads(recorder, "test.calm", 1)
    assert recorder.refused == ["perf: not installed; apt install linux-perf"]
    assert [note.detail for note in every(place, RecorderNote)] == ["perf: not installed"]


def test_a_destination_that_cannot_be_is_an_error_that_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    place = tmp_path / "r"
    made = chosen(stacks=False, ring=False, ship="nonsense://x")
    with pytest.raises(StoreError, match="nonsense://x"), recording(options(place), [calm()], made):
        pass
    assert not is_locked(place)


class Broken:
    """Fails at everything it is asked."""

    name = "test.broken"
    outlasts = False
    may_hang = False

    def __init__(self, _: Place) -> None:
        pass

    def _fail(self) -> Any:
        raise OSError(errno.EROFS, "Read-only file system")

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:
        del now_s, alarm
        return self._fail()  # type: ignore[no-any-return]

    def alarmed(self, pin: Pin) -> None:
        del pin
        self._fail()

    cost = rest = wake = close = status = _fail


def test_one_that_fails_at_everything_is_told_and_the_recorder_goes_on(tmp_path: Path) -> None:
    place = tmp_path / "r"
    calm = source("test.calm", VmCounter, lambda: [VmCounter("ticks", 1)])
    with recording(options(place), [calm], [Broken]) as recorder:
        wait_until(lambda: recorder._companions[0].failures >= 3)
        failed_s = time.monotonic()
        wait_for_reads(recorder, "test.calm", 3)
    assert max(moments(place, VmCounter)) > failed_s
    told = [note.detail for note in every(place, RecorderNote) if note.kind == "source"]
    assert any("test.broken failed" in words and "Read-only" in words for words in told)


class Hanging(Broken):
    """Never comes back from the kernel: a real read of a pipe that nobody writes to."""

    name = "test.hanging"
    may_hang = True
    pipe = (-1, -1)
    closed = threading.Event()

    def _hang(self) -> Any:
        os.read(self.pipe[0], 1)
        return ()

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:
        del now_s, alarm
        return self._hang()  # type: ignore[no-any-return]

    def cost(self) -> tuple[float, int]:
        return 0.0, 0

    def status(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def hanging() -> Iterator[type[Hanging]]:
    Hanging.pipe = os.pipe()
    Hanging.closed.clear()
    yield Hanging
    os.write(Hanging.pipe[1], b"x" * 100)
    for end in Hanging.pipe:
        os.close(end)


def test_one_that_hangs_in_the_kernel_does_not_hold_up_the_recorder(
    tmp_path: Path, hanging: type[Hanging]
) -> None:
    place = tmp_path / "r"
    calm = source("test.calm", VmCounter, lambda: [VmCounter("ticks", 1)])
    with recording(options(place), [calm], [hanging]) as recorder:
        wait_until(lambda: recorder._companions[0].failures >= 1)
        wait_for_reads(recorder, "test.calm", 3)
        assert recorder._companions[0].failures == 1, "it is not called again while it hangs"
    assert not hanging.closed.is_set()
    os.write(hanging.pipe[1], b"x" * 10)
    assert hanging.closed.wait(60), "it is closed behind the call that hung"
    told = [note.detail for note in every(place, RecorderNote) if note.kind == "source"]
    assert any("test.hanging failed" in words and "no answer" in words for words in told)


def test_one_that_hangs_while_it_is_made_is_missed_and_closed_when_it_comes(
    tmp_path: Path, hanging: type[Hanging]
) -> None:
    class Slow(hanging):  # type: ignore[valid-type, misc]
        def __init__(self, place: Place) -> None:
            super().__init__(place)
            self._hang()

    calm = source("test.calm", VmCounter, lambda: [VmCounter("ticks", 1)])
    with recording(options(tmp_path / "r"), [calm], [Slow]) as recorder:
        wait_until(lambda: recorder.refused)
        assert "did not answer" in recorder.refused[0]
        os.write(hanging.pipe[1], b"x")
        assert hanging.closed.wait(60)


def test_one_that_the_disk_refuses_at_the_start_is_missed_and_not_fatal(tmp_path: Path) -> None:
    def refuse(_: Place) -> Companion:
        raise OSError(errno.ENOSPC, "No space left on device")

    place = tmp_path / "r"
    calm = source("test.calm", VmCounter, lambda: [VmCounter("ticks", 1)])
    with recording(options(place), [calm], [refuse]) as recorder:
        wait_until(lambda: recorder._writer.written.bytes)
    assert "No space left" in recorder.refused[0]
