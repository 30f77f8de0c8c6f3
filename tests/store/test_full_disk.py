"""Disks that say no, for real: a small file system of our own, filled and made read-only."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.store.journal import OpenSegment
from sexton.store.layout import ASIDE, Lock, prepare, segment_name, write_whole
from sexton.store.pins import Pin, add_pin, pins_in
from sexton.store.recording import Recording
from sexton.store.retention import Limits, Retention
from sexton.store.schema import tables
from sexton.store.sealed import seal
from sexton.store.sealer import take_over
from tests.support.recordings import BOOT, HEADER, STATES, cores, marks, shown, write_sealed

pytestmark = pytest.mark.root

MARK, CORE = tables()["mark"], tables()["core_times"]
_LIBC = ctypes.CDLL(None, use_errno=True)
_MS_RDONLY, _MS_REMOUNT, _MNT_DETACH = 1, 32, 2
_SIZE = 1 << 20


def mount(place: Path, flags: int = 0, options: str = f"size={_SIZE}") -> None:
    done = _LIBC.mount(b"sexton-test", str(place).encode(), b"tmpfs", flags, options.encode())
    if done != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """One MiB, gone afterwards whatever happened."""
    place = tmp_path / "disk"
    place.mkdir()
    mount(place)
    try:
        prepare(place)
        yield place
    finally:
        assert _LIBC.umount2(str(place).encode(), _MNT_DETACH) == 0


def fill(disk: Path, leave: int = 0) -> Path:
    """Leave that many bytes free, of whole pages."""
    path = disk / "ballast"
    with path.open("wb", buffering=0) as stream:
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
        stream.write(b"x" * max(free - leave, 0))
    return path


def opened(disk: Path, sequence: int = 1) -> OpenSegment:
    return OpenSegment(disk / "open" / segment_name(sequence, 0.0).text, HEADER)


def flush(segment: OpenSegment, second: int, rows: int = 400) -> None:
    segment.flush({MARK: [marks(rows, float(second))], CORE: [cores(float(second))]}, STATES)


def assert_reads(disk: Path, seconds: list[int], rows: int = 400) -> None:
    recording = Recording(disk)
    assert recording.problems == []
    found = {
        kind: [batch for segment in recording.segments for batch in segment.batches(kind)]
        for kind in (MARK, CORE)
    }
    assert shown(found[MARK]) == shown([marks(rows, float(second)) for second in seconds])
    assert shown(found[CORE]) == shown([cores(float(second)) for second in seconds])


@pytest.mark.parametrize("leave", [0, 4096, 8192, 12288])
def test_a_flush_that_finds_no_room_loses_nothing_and_goes_out_later(disk: Path, leave: int):
    segment = opened(disk)
    flush(segment, 1)
    ballast = fill(disk, leave)
    failed = []
    for second in range(2, 30):
        try:
            flush(segment, second)
        except OSError as error:
            failed.append(error.errno)
    assert set(failed) == {errno.ENOSPC}
    assert segment.waiting_bytes
    read_meanwhile = [batch.mono_s for batch in Recording(disk).segments[0].batches(CORE)]
    assert read_meanwhile == [float(second) for second in range(1, 1 + len(read_meanwhile))]
    assert_reads(disk, [int(second) for second in read_meanwhile])
    ballast.unlink()
    flush(segment, 30)
    assert segment.waiting_bytes == 0
    segment.close()
    assert_reads(disk, list(range(1, 31)))
    seal(segment.directory, disk / "segments")
    assert_reads(disk, list(range(1, 31)))


def test_what_a_torn_flush_left_is_written_over_where_it_cannot_be_cut_off(
    disk: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "no")

    segment = opened(disk)
    flush(segment, 1)
    ballast = fill(disk, 4096)
    monkeypatch.setattr("sexton.store.journal.os.ftruncate", refuse)
    with pytest.raises(OSError, match="No space"):
        flush(segment, 2, 2000)
    ballast.unlink()
    flush(segment, 3)
    segment.close()
    (found,) = Recording(disk).segments
    assert shown(found.batches(CORE)) == shown([cores(1.0), cores(2.0), cores(3.0)])
    assert [len(batch.rows) for batch in found.batches(MARK)] == [400, 2000, 400]


def test_a_first_flush_that_cannot_even_make_its_files_goes_out_later(disk: Path):
    segment = opened(disk)
    status = os.statvfs(disk)
    used = status.f_files - status.f_ffree
    mount(disk, _MS_REMOUNT, f"size={_SIZE},nr_inodes={used + 1}")  # room for one file of three
    with pytest.raises(OSError, match="No space"):
        flush(segment, 1)
    mount(disk, _MS_REMOUNT, f"size={_SIZE},nr_inodes=1000")
    flush(segment, 2)
    segment.close()
    assert_reads(disk, [1, 2])


def test_what_waits_can_be_dropped_and_the_segment_goes_on(disk: Path):
    segment = opened(disk)
    segment.flush({CORE: [cores(1.0)]}, STATES)
    ballast = fill(disk)
    with pytest.raises(OSError, match="No space"):
        flush(segment, 2, 4000)
    assert segment.drop_waiting() == 4002
    assert segment.waiting_bytes == 0
    ballast.unlink()
    flush(segment, 3)
    segment.close()
    (found,) = Recording(disk).segments
    assert shown(found.batches(CORE)) == shown([cores(1.0), cores(3.0)])
    assert shown(found.batches(MARK)) == shown([marks(400, 3.0)])


def test_sealing_without_room_leaves_the_open_segment_and_nothing_half(disk: Path):
    segment = opened(disk)
    for second in range(1, 6):
        flush(segment, second)
    segment.close()
    for leave in (0, 4096, 8192):
        ballast = fill(disk, leave)
        with pytest.raises(OSError, match="No space"):
            seal(segment.directory, disk / "segments")
        assert list((disk / "segments").iterdir()) == []
        assert_reads(disk, [1, 2, 3, 4, 5])
        notes = take_over(disk)
        assert any("No space left" in note for note in notes)
        ballast.unlink()
    assert seal(segment.directory, disk / "segments")[0] is not None
    assert_reads(disk, [1, 2, 3, 4, 5])


def test_a_segment_that_cannot_be_begun_leaves_no_trace_and_can_be_begun_later(disk: Path):
    ballast = fill(disk)
    with pytest.raises(OSError, match="No space"):
        opened(disk)
    assert list((disk / "open").iterdir()) == []
    ballast.unlink()
    segment = opened(disk)
    flush(segment, 1)
    segment.close()
    assert_reads(disk, [1])


def test_small_files_and_the_lock_on_a_full_disk(disk: Path):
    add_pin(disk, Pin("a", "mark", "", "", BOOT, 1.0, 2.0, 3.0))
    write_whole(disk / "status.json", b"old")
    fill(disk)
    with pytest.raises(OSError, match="No space"):
        write_whole(disk / "status.json", b"new" * 5000)
    with pytest.raises(OSError, match="No space"):
        add_pin(disk, Pin("a", "mark", "", "", BOOT, 1.0, 9.0, 3.0))
    assert (disk / "status.json").read_bytes() == b"old"
    assert [pin.end_s for pin in pins_in(disk)[0]] == [2.0]
    assert [path for path in disk.rglob("*") if path.name.startswith(ASIDE)] == []
    Lock(disk).release()


def test_retention_makes_room_on_a_full_disk(disk: Path):
    for sequence in (1, 2, 3):
        write_sealed(disk, [{MARK: [marks(2000, sequence * 10.0)]}], sequence)
    fill(disk)
    keeper = Retention(disk, Limits(1e9, 1 << 40))
    assert keeper.drop_oldest().startswith("00000001")
    segment = opened(disk, 4)
    segment.flush({CORE: [cores(40.0)]}, STATES)
    segment.close()
    assert [item.sequence for item in Recording(disk).segments] == [2, 3, 4]


def test_a_disk_that_turns_read_only_costs_nothing_that_was_flushed(disk: Path):
    segment = opened(disk)
    for second in (1, 2, 3):
        flush(segment, second)
    segment.close()
    write_sealed(disk, [{CORE: [cores(100.0)], MARK: [marks(400, 100.0)]}], 7)
    mount(disk, _MS_REMOUNT | _MS_RDONLY)
    assert_reads(disk, [1, 2, 3, 100])
    for refused in (
        lambda: seal(segment.directory, disk / "segments"),
        lambda: opened(disk, 8),
        lambda: write_whole(disk / "status.json", b""),
    ):
        with pytest.raises(OSError, match="Read-only"):
            refused()
    assert any("Read-only" in note for note in take_over(disk))
    keeper = Retention(disk, Limits(0.0, 0))
    keeper.tidy((1e6, 4e9), BOOT)
    keeper.drop_oldest()
    assert_reads(disk, [1, 2, 3, 100])
    mount(disk, _MS_REMOUNT)
    seal(segment.directory, disk / "segments")
    assert_reads(disk, [1, 2, 3, 100])
    keeper.tidy((1e6, 4e9), BOOT)
    assert Recording(disk).segments == []


def test_a_flush_that_meets_a_read_only_disk_goes_out_when_it_is_writable_again(disk: Path):
    """A new table's file cannot be made there; what is open for writing keeps a disk writable."""
    segment = opened(disk)
    place = segment.directory
    place.rename(place.with_name("moved"))  # the same to `open`: no such place, for now
    with pytest.raises(OSError, match="No such file"):
        flush(segment, 1)
    place.with_name("moved").rename(place)
    flush(segment, 2)
    segment.close()
    assert_reads(disk, [1, 2])
