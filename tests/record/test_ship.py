"""Pinned minutes off the node: complete, once and in order, whatever the destination does."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from sexton.errors import StoreError
from sexton.record import ship
from sexton.record.destination import Directory
from sexton.record.ship import Shipper
from sexton.store.pins import Pin, add_pin, drop_pin
from sexton.store.recording import Recording
from sexton.store.sealed import seal
from sexton.store.signing import check_signed, read_public
from sexton.store.verify import verify
from tests.support.annexes import STAMP, annex, samples
from tests.support.keys import make_keys, signed
from tests.support.profiles import profile_of
from tests.support.recordings import BOOT, HEADER, WALL_S, simple, write_open, write_sealed

#: This boot's clock, on which a pin of now lies.
NOW = time.monotonic()


def pin(start_s: float, end_s: float, name: str = "p1", boot_id: str = BOOT) -> Pin:
    return Pin(name, "nic_reset", "eth0", "reset", boot_id, start_s, end_s, WALL_S + start_s)


def until(true: Callable[[], object]) -> None:
    """Wait for what must come; three minutes are "never"."""
    end = time.monotonic() + 180
    while not true():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not when this file was collected: what is sent depends on how long ago a pin ended.
    monkeypatch.setattr(sys.modules[__name__], "NOW", time.monotonic())
    monkeypatch.setattr(ship, "AGAIN_S", 0.05)
    monkeypatch.setattr(ship, "_IDLE_S", 0.05)
    monkeypatch.setattr(ship, "_LEAST_WAIT_S", 0.02)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Three sealed segments of a boot that is over, a minute apart, and an open one of another."""
    place = tmp_path / "rec"
    for number in (1, 2, 3):
        write_sealed(place, [simple(number * 60.0)], number)
    write_open(place, [simple(NOW)], 4, {**HEADER, "boot_id": "this boot"})
    return place


@pytest.fixture
def box(tmp_path: Path) -> Path:
    place = tmp_path / "box"
    place.mkdir()
    return place


@pytest.fixture
def start() -> Iterator[Callable[..., Shipper]]:
    made: list[Shipper] = []

    def begin(url: object, directory: Path) -> Shipper:
        made.append(Shipper(str(url), "node/7", directory))
        return made[-1]

    yield begin
    for part in made:
        part.close()


def listing(place: Path) -> dict:
    return json.loads((place / "shipped.json").read_text())


def test_a_pin_arrives_as_a_whole_recording_of_its_minutes(recording, box, start):
    add_pin(recording, pin(100.0, 130.0))
    shipper = start(box, recording)
    until(lambda: shipper.counts.shipped == 1)
    there = box / "node_7/p1"
    assert [segment.sequence for segment in Recording(there).segments] == [2]
    assert verify(there).troubles == []
    assert listing(there)["whole"] is True
    assert set(listing(there)["files"]) == {
        str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()
    } - {"shipped.json"}
    assert shipper.status()["last_error"] == ""
    assert shipper.counts.waiting == 0


def test_signatures_arrive_with_what_they_cover(tmp_path, box, start):
    keys = make_keys(tmp_path / "keys")
    made = signed(tmp_path / "rec", keys, 3)
    add_pin(tmp_path / "rec", pin(4.0, 5.0))
    shipper = start(box, tmp_path / "rec")
    until(lambda: shipper.counts.shipped == 1)
    found = check_signed(box / "node_7/p1", read_public(str(keys.public)))
    assert found.segments == {made[1].name}


def test_what_arrives_is_for_its_owner_alone(recording, box, start):
    add_pin(recording, pin(100.0, 130.0))
    before = os.umask(0)
    try:
        shipper = start(f"file://{box}", recording)
        until(lambda: shipper.counts.shipped == 1)
    finally:
        os.umask(before)
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in box.rglob("*")}
    assert modes == {(True, 0o700), (False, 0o600)}


def test_the_open_segment_goes_at_once_again_and_then_sealed(recording, box, start):
    now = pin(NOW - 300, time.monotonic() + 120, boot_id="this boot")
    shipper = start(box, recording)
    until(lambda: shipper.counts.waiting == 0)
    add_pin(recording, now)
    shipper.alarmed(now)
    there = box / "node_7/p1"
    until(lambda: (there / "shipped.json").exists())
    (copy,) = Recording(there).segments
    assert not copy.sealed
    assert listing(there)["whole"] is False
    assert verify(there).troubles == []
    (opened,) = (recording / "open").iterdir()
    seal(opened, recording / "segments")
    until(lambda: (there / "segments" / opened.name / "manifest.json").exists())
    until(lambda: not (there / "open" / opened.name).exists())
    until(lambda: "open/" not in json.dumps(listing(there)["files"]))
    assert [segment.sealed for segment in Recording(there).segments] == [True]
    assert listing(there)["whole"] is False, "its end is yet to come"
    assert shipper.counts.waiting == 1


def test_a_half_flushed_tail_does_not_travel(recording, box, start):
    (opened,) = (recording / "open").iterdir()
    for name in ("journal", "mark.rows"):
        with (opened / name).open("ab") as stream:
            stream.write(b"half a flush")
    add_pin(recording, pin(NOW - 300, time.monotonic() + 120, boot_id="this boot"))
    start(box, recording)
    until(lambda: (box / "node_7/p1/shipped.json").exists())
    assert verify(box / "node_7/p1").troubles == []


def test_rings_and_closed_stacks_of_that_time_go_along(recording, box, start):
    for name, at in (("rings/a.parquet", 125), ("stacks/perf.data.20231114221500", 200),
                     ("stacks/perf.data", 125), ("rings/old.parquet", -500)):  # fmt: skip
        (recording / name).write_bytes(b"PERFILE2" * 200_000)
        os.utime(recording / name, (WALL_S + at, WALL_S + at))
    (recording / f"stacks/kallsyms-{BOOT}.gz").write_bytes(b"symbols")
    (recording / "stacks/kallsyms-other.gz").write_bytes(b"symbols")
    add_pin(recording, pin(100.0, 130.0))
    shipper = start(box, recording)
    until(lambda: shipper.counts.shipped == 1)
    loose = {name for name in listing(box / "node_7/p1")["files"] if name[0] in "rs"}
    loose = {name for name in loose if not name.startswith("segments/")}
    assert loose == {
        "rings/a.parquet",
        "stacks/perf.data.20231114221500",
        f"stacks/kallsyms-{BOOT}.gz",
    }
    there = box / "node_7/p1/rings/a.parquet"
    assert there.read_bytes() == (recording / "rings/a.parquet").read_bytes()


def test_stacks_that_are_decoded_later_follow_and_replace_what_perf_wrote(recording, box, start):
    segment = write_sealed(recording, [simple(NOW - 400.0)], 5, {**HEADER, "boot_id": "this boot"})
    write_sealed(recording, [simple(NOW - 1.0)], 6, {**HEADER, "boot_id": "this boot"})
    shutil.rmtree(recording / "open")
    raw = recording / "stacks" / f"perf.data.{STAMP}"
    raw.write_bytes(b"PERFILE2 and so on")
    os.utime(raw, (WALL_S + NOW - 395.0,) * 2)
    add_pin(recording, pin(NOW - 410.0, NOW - 390.0, boot_id="this boot"))
    shipper = start(box, recording)
    there = box / "node_7/p1"
    until(lambda: (there / "stacks" / raw.name).exists())
    until(lambda: (there / "shipped.json").exists())
    assert listing(there)["whole"] is False, "its stacks are not decoded yet"
    annex(segment, profile_of(samples(NOW - 400.0)), boot_id="this boot")
    raw.unlink()
    until(lambda: listing(there)["whole"])
    until(lambda: shipper.counts.shipped == 1)
    assert not (there / "stacks" / raw.name).exists()
    (found,) = Recording(there).segments
    assert [item.name for item in found.annexes] == [f"profile-{STAMP}"]
    assert verify(there).troubles == []


def test_the_ring_dumped_at_the_alarm_goes_with_the_open_segment(recording, box, start):
    add_pin(recording, pin(NOW - 300, time.monotonic() + 120, boot_id="this boot"))
    (recording / "rings/p1.parquet").write_bytes(b"ring")
    start(box, recording)
    until(lambda: (box / "node_7/p1/shipped.json").exists())
    assert (box / "node_7/p1/rings/p1.parquet").read_bytes() == b"ring"


def test_nothing_is_sent_twice_not_even_by_the_next_recorder(recording, box, start):
    add_pin(recording, pin(100.0, 130.0))
    first = start(box, recording)
    until(lambda: first.counts.shipped == 1)
    first.close()
    stamps = {path: path.stat().st_mtime_ns for path in box.rglob("*.parquet")}
    second = start(box, recording)
    until(lambda: second.counts.shipped == 1)
    assert second.counts.files == 0
    assert {path: path.stat().st_mtime_ns for path in box.rglob("*.parquet")} == stamps


def test_a_pin_whose_end_moved_is_taken_up_again(recording, box, start):
    add_pin(recording, pin(100.0, 130.0))
    shipper = start(box, recording)
    until(lambda: shipper.counts.shipped == 1)
    add_pin(recording, pin(100.0, 190.0))
    until(lambda: len(Recording(box / "node_7/p1").segments) == 2)


class Failing(Directory):
    """A directory that refuses its n-th put, or all while it is told to."""

    def __init__(self, path: Path, at: int = -1) -> None:
        super().__init__(path)
        self.at = at
        self.puts: list[str] = []
        self.refuses = False

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        self.puts.append(name)
        if self.refuses or len(self.puts) == self.at:
            raise OSError(28, "No space left on device")
        super().put(name, chunks)


@pytest.mark.parametrize("at", range(1, 5))
def test_a_send_cut_short_anywhere_is_recognisable_and_finished_later(
    recording, box, start, monkeypatch, at
):
    to = Failing(box, at)
    seen: list[bool] = []
    monkeypatch.setattr(ship, "open_destination", lambda url, directory: to)
    real = to.get

    def get(name: str, most: int) -> bytes | None:
        seen.append((box / name).exists())
        return real(name, most)

    to.get = get  # type: ignore[method-assign]
    add_pin(recording, pin(100.0, 130.0))
    shipper = start(box, recording)
    until(lambda: shipper.counts.failed == 1)
    assert to.puts[at - 1] != "node_7/p1/shipped.json" or at == 4
    until(lambda: shipper.counts.shipped == 1)
    assert seen[0] is False
    assert to.puts[-1] == "node_7/p1/shipped.json"
    assert verify(box / "node_7/p1").troubles == []


def test_a_failure_is_told_once_and_so_is_its_end(recording, box, start, monkeypatch):
    to = Failing(box)
    to.refuses = True
    monkeypatch.setattr(ship, "open_destination", lambda url, directory: to)
    add_pin(recording, pin(100.0, 130.0))
    shipper = start(box, recording)
    until(lambda: shipper.counts.failed >= 3)
    assert shipper.counts.waiting == 1
    assert "No space left" in shipper.counts.last_error
    to.refuses = False
    until(lambda: shipper.counts.shipped == 1)
    words = [row.detail for row in shipper.beat(time.monotonic(), False)]
    assert len(words) == 2
    assert "No space left on device" in words[0]
    assert "again" in words[1]
    assert shipper.beat(time.monotonic(), False) == []


def test_waits_between_attempts_grow_up_to_five_minutes(recording, box, monkeypatch):
    waits: list[float] = []

    class Watched(threading.Event):
        """Waits for nothing, and asks to end after eleven attempts."""

        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            if len(waits) == 22:
                shipper._closing.set()
            return self.is_set()

    to = Failing(box)
    to.refuses = True
    monkeypatch.setattr(ship, "_LEAST_WAIT_S", 1.0)
    monkeypatch.setattr(ship, "open_destination", lambda url, directory: to)
    monkeypatch.setattr(threading.Thread, "start", lambda self: None)
    monkeypatch.setattr(threading.Thread, "join", lambda self, timeout: None)
    add_pin(recording, pin(100.0, 130.0))
    shipper = Shipper(str(box), "n", recording)
    shipper._closing, shipper._wake = Watched(), Watched()
    shipper._run()
    both = [least + more for least, more in zip(waits[::2], waits[1::2], strict=True)]
    assert both == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_a_destination_that_hangs_never_holds_the_recorder(recording, box, start, monkeypatch):
    to = Failing(box)
    held = threading.Event()
    monkeypatch.setattr(to, "put", lambda name, chunks: held.wait(60))
    monkeypatch.setattr(ship, "open_destination", lambda url, directory: to)
    monkeypatch.setattr(ship, "_CLOSE_S", 0.1)
    add_pin(recording, pin(100.0, 130.0))
    shipper = start(box, recording)
    until(lambda: shipper.status()["busy_s"] > 0)
    now = time.monotonic() + ship._STUCK_S + 1
    (note,) = shipper.beat(now, True)
    assert "has not responded for" in note.detail
    assert shipper.beat(now + 1, True) == []
    shipper.alarmed(pin(100.0, 130.0))
    shipper.close()
    held.set()


def test_segments_that_retention_takes_meanwhile_are_no_failure(recording, box, start):
    add_pin(recording, pin(0.0, 1000.0))
    shutil.rmtree(sorted((recording / "segments").iterdir())[0])
    shipper = start(box, recording)
    until(lambda: shipper.counts.shipped == 1)
    assert shipper.counts.failed == 0
    assert len(Recording(box / "node_7/p1").segments) == 2


def test_a_pin_that_holds_nothing_any_more_waits_for_nothing(recording, box, start):
    add_pin(recording, pin(5000.0, 5001.0))
    shipper = start(box, recording)
    until(lambda: shipper.counts.shipped == 1)
    assert list(box.iterdir()) == []


def test_a_pin_that_was_let_go_is_forgotten(recording, box, start, monkeypatch):
    to = Failing(box)
    to.refuses = True
    monkeypatch.setattr(ship, "open_destination", lambda url, directory: to)
    add_pin(recording, pin(100.0, 130.0))
    shipper = start(box, recording)
    until(lambda: shipper.counts.failed >= 1)
    drop_pin(recording, pin(100.0, 130.0))
    until(lambda: shipper.counts.waiting == 0)


def test_a_listing_that_makes_no_sense_is_made_anew(recording, box, start):
    there = box / "node_7/p1"
    there.mkdir(parents=True)
    (there / "shipped.json").write_text('{"files": [1, 2]}')
    add_pin(recording, pin(100.0, 130.0))
    shipper = start(box, recording)
    until(lambda: shipper.counts.shipped == 1)
    assert listing(there)["whole"] is True


def test_a_bad_destination_is_refused_at_the_start(recording):
    with pytest.raises(StoreError, match="neither a directory nor one of"):
        Shipper("http://example.org/x", "n", recording)
