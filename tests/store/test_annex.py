"""What is sealed into a segment later: there whole or not at all, and taken along everywhere."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sexton.errors import StoreError
from sexton.profile.recorded import Stacks
from sexton.store.annex import (
    Annex,
    Origin,
    Stored,
    annexes_of,
    boot_at,
    free_name,
    home_of,
    sealed_from,
    write_annex,
)
from sexton.store.export import export_recording
from sexton.store.pieces import pieces_of
from sexton.store.recording import Recording
from sexton.store.retention import Limits, Retention, size_of
from sexton.store.sealer import take_over
from sexton.store.summary import summarise
from sexton.store.verify import DAMAGED, FOREIGN, verify
from tests.support.annexes import STAMP, annex, samples, with_stacks
from tests.support.profiles import profile_of
from tests.support.recordings import (
    BOOT,
    HEADER,
    WALL_S,
    manifest_of,
    replace_table,
    resign,
    simple,
    write_open,
    write_sealed,
)

OTHER = "0f8c2f5e-0000-4000-8000-000000000002"
EMPTY = {"boot_id": BOOT, "start": [1.0, 2.0], "end": [1.0, 2.0]}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "r"


def test_one_that_cannot_be_finished_leaves_nothing(place: Path) -> None:
    segment = write_sealed(place, [simple(100.0)])

    def full() -> Iterator[pa.Table]:
        yield pa.table({"a": [1]})
        raise OSError(errno.ENOSPC, "No space left on device")

    before = sorted(path.name for path in segment.iterdir())
    with pytest.raises(OSError, match="No space"):
        write_annex(segment, f"profile-{STAMP}", EMPTY, {"sample": Stored(full(), {})})
    assert sorted(path.name for path in segment.iterdir()) == before
    assert list((place / "stacks").iterdir()) == []


def test_one_whose_segment_is_retired_meanwhile_leaves_nothing(place: Path) -> None:
    segment = write_sealed(place, [simple(100.0)])
    shutil.rmtree(segment)
    with pytest.raises(FileNotFoundError):
        annex(segment, profile_of(samples()))
    assert list((place / "stacks").iterdir()) == []
    assert list((place / "segments").iterdir()) == []


def test_what_was_left_half_written_is_removed_by_the_next_recorder(place: Path) -> None:
    with_stacks(place)
    (place / "stacks" / f".new-profile-{STAMP}").mkdir()
    assert any("half-written" in words for words in take_over(place))
    assert list((place / "stacks").iterdir()) == []
    assert verify(place).whole


def test_it_is_for_its_owner_alone(place: Path) -> None:
    made = with_stacks(place)
    assert made.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in made.iterdir()} == {0o600}


def test_a_segment_counts_what_was_sealed_into_it(place: Path) -> None:
    segment = write_sealed(place, [simple(100.0)])
    (found,) = Recording(place).segments
    before, room = found.bytes, size_of(segment)
    made = annex(segment, profile_of(samples()))
    assert found.bytes == before + sum(path.stat().st_size for path in made.iterdir())
    assert size_of(segment) > room


def test_retention_sees_one_that_came_later_and_takes_it_with_its_segment(place: Path) -> None:
    segment = write_sealed(place, [simple(100.0)], 1)
    write_sealed(place, [simple(300.0)], 2)
    keeper = Retention(place, Limits(1e9, 1 << 30))
    keeper.tidy((310.0, WALL_S + 310.0), BOOT)
    before = keeper.bytes
    made = annex(segment, profile_of(samples()))
    keeper.tidy((310.0, WALL_S + 310.0), BOOT)
    assert keeper.bytes >= before + Annex(made).bytes
    keeper.limits = Limits(1e9, keeper.bytes - 1)
    keeper.tidy((310.0, WALL_S + 310.0), BOOT)
    assert not segment.exists()
    assert len(list((place / "segments").iterdir())) == 1


def test_every_byte_of_it_is_verified(place: Path) -> None:
    made = with_stacks(place, number=2)
    assert verify(place).whole
    for path in sorted(made.iterdir()):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        kept = path.read_bytes()
        path.write_bytes(content)
        (trouble,) = verify(place).troubles
        assert trouble.kind == DAMAGED
        assert trouble.place.startswith(f"segments/{made.parent.name}/{made.name}")
        path.unlink()
        (trouble,) = verify(place).troubles
        assert "missing" in trouble.detail
        path.write_bytes(kept)
    assert verify(place).whole


def test_what_is_foreign_in_it_or_beside_it_is_named(place: Path) -> None:
    made = with_stacks(place)
    (made / "notes.txt").write_text("x")
    (made.parent / "profile-x").mkdir()
    (made.parent / f"{made.name}.1").symlink_to(made)
    found = {trouble.place: trouble.kind for trouble in verify(place).troubles}
    inside = f"segments/{made.parent.name}"
    assert found == {
        f"{inside}/{made.name}/notes.txt": FOREIGN,
        f"{inside}/profile-x": FOREIGN,
        f"{inside}/{made.name}.1": FOREIGN,
    }
    (segment,) = Recording(place).segments
    assert [item.name for item in segment.annexes] == [made.name]


def test_one_under_another_ones_name_is_not_believed(place: Path) -> None:
    made = with_stacks(place)
    made.rename(made.with_name("profile-2026111599999999"))
    problems: list[str] = []
    assert annexes_of(made.parent, problems) == []
    assert "belongs to another annex" in problems[0]
    assert "its manifest belongs to" in verify(place).troubles[0].detail


def test_a_damaged_one_is_told_once_and_its_segment_is_read(place: Path) -> None:
    made = with_stacks(place)
    (made / "manifest.json").write_text("")
    recording = Recording(place)
    (segment,) = recording.segments
    assert segment.annexes == segment.annexes == []
    assert len(recording.problems) == 1
    assert made.name in recording.problems[0]
    with pytest.raises(StoreError):
        Annex(made)


def test_a_copy_takes_it_along_after_its_segment_and_its_manifest_last(place: Path) -> None:
    made = with_stacks(place)
    recording = Recording(place)
    names = [piece.name for piece in pieces_of(recording.segments[0].path)]
    inside = f"segments/{made.parent.name}"
    mine = [name for name in names if f"/{made.name}/" in name]
    assert names[-1] == f"{inside}/{made.name}/manifest.json"
    assert names.index(f"{inside}/manifest.json") < names.index(mine[0])
    assert len(mine) == len(list(made.iterdir()))
    export_recording(recording, place.with_name("copy"), recording.segments, [])
    copied = place.with_name("copy")
    assert verify(copied).whole
    assert len(Recording(copied).segments[0].annexes) == 1


def test_info_sums_up_what_was_sampled(place: Path) -> None:
    with_stacks(place, number=3)
    (place / "stacks" / "perf.data.2026111513300400").write_bytes(b"PERFILE2")
    found = summarise(Recording(place)).profiles
    assert (found.annexes, found.samples, found.lost) == (3, 240, None)
    assert (found.waiting, found.waiting_bytes) == (1, 8)
    assert found.start == (100.0, WALL_S + 100.0)
    assert found.end is not None
    assert found.end[0] == pytest.approx(303.9, abs=0.01)


# Which segment it belongs to.


def sealed(place: Path, *starts: float, boot_id: str = BOOT, first: int = 1) -> list[Path]:
    """Segments of a hundred seconds."""
    return [
        write_sealed(
            place, [simple(start), simple(start + 99.0)], number, {**HEADER, "boot_id": boot_id}
        )
        for number, start in enumerate(starts, first)
    ]


def test_it_belongs_to_the_segment_that_holds_most_of_its_time(place: Path) -> None:
    one, two, three = sealed(place, 100.0, 200.0, 300.0)
    assert home_of(place, BOOT, (110.0, 190.0)).path == one
    assert home_of(place, BOOT, (160.0, 280.0)).path == two
    assert home_of(place, BOOT, (260.0, 390.0)).path == three
    assert home_of(place, BOOT, (260.0, 390.0)).ahead_s == pytest.approx(WALL_S)
    assert not home_of(place, BOOT, (260.0, 390.0)).waits


def test_the_nearest_takes_what_no_segment_holds(place: Path) -> None:
    one, two = sealed(place, 100.0, 900.0)
    assert home_of(place, BOOT, (250.0, 300.0)).path == one
    assert home_of(place, BOOT, (700.0, 790.0)).path == two
    assert home_of(place, BOOT, (2000.0, 2100.0)).path == two


def test_it_waits_for_a_segment_that_is_open_and_holds_more_of_it(place: Path) -> None:
    (one,) = sealed(place, 100.0)
    write_open(place, [simple(200.0)], 2)
    assert home_of(place, BOOT, (180.0, 300.0)).waits
    early = home_of(place, BOOT, (110.0, 220.0))
    assert (early.path, early.waits) == (one, False)


def test_the_first_file_waits_for_the_first_segment(place: Path) -> None:
    write_open(place, [simple(100.0)], 1)
    found = home_of(place, BOOT, (100.0, 150.0))
    assert (found.path, found.waits) == (None, True)


def test_another_boots_segments_are_none_of_its(place: Path) -> None:
    (old,) = sealed(place, 100.0, boot_id=OTHER)
    assert home_of(place, BOOT, (100.0, 150.0)).path is None
    (new,) = sealed(place, 100.0, first=2)
    assert home_of(place, BOOT, (100.0, 150.0)).path == new
    assert home_of(place, OTHER, (100.0, 150.0)).path == old


def test_a_file_of_an_earlier_boot_is_placed_by_the_wall_clock(place: Path) -> None:
    assert boot_at(place, WALL_S) == ""
    sealed(place, 100.0, boot_id=OTHER)
    sealed(place, 9000.0, first=2)
    assert boot_at(place, WALL_S + 150.0) == OTHER
    assert boot_at(place, WALL_S + 9050.0) == BOOT
    assert boot_at(place, WALL_S + 8000.0) == BOOT


def test_what_a_file_was_made_into_is_known_by_that_very_file(place: Path) -> None:
    segment = write_sealed(place, [simple(100.0)])
    origin = Origin(f"perf.data.{STAMP}", 10, 20)
    header = {**EMPTY, "origin": list(origin)}
    table = {"sample": Stored([pa.table({"a": [1]})], {})}
    made = write_annex(segment, f"profile-{STAMP}", header, table)
    assert sealed_from(place, origin) == made
    assert sealed_from(place, origin._replace(mtime_ns=21)) is None
    assert free_name(segment, origin.name) == f"profile-{STAMP}.1"
    write_annex(segment, free_name(segment, origin.name), header, dict(table))
    assert len(annexes_of(segment)) == 2
    assert json.loads(json.dumps(annexes_of(segment)[0].manifest))["origin"] == list(origin)
    assert os.listdir(place / "stacks") == []


def test_an_annex_whose_numbers_lead_out_of_its_tables_is_refused(place: Path) -> None:
    """With checksums that fit: somebody made it."""
    with_stacks(place)
    found = annexes_of(next((place / "segments").iterdir()))[0]
    who = found.table("who")
    far = who.set_column(0, who.column_names[0], pa.array([99] * who.num_rows, pa.int32()))
    sink = pa.BufferOutputStream()
    pq.write_table(far, sink, store_schema=False)
    content = sink.getvalue().to_pybytes()
    replace_table(found.path, "who", content)
    manifest = manifest_of(found.path)
    with pytest.raises(StoreError, match="an index is out of range"):
        Stacks(annexes_of(found.path.parent)[0])
    manifest["profile"]["events"] = 7
    resign(found.path, manifest)
    with pytest.raises(StoreError, match="cannot be understood"):
        Stacks(annexes_of(found.path.parent)[0])
